"""Handlers whose lease, connection or process goes away while they run."""

import asyncio

import asyncpg
import pytest
from tests.support.jobs import Connection, Job, effects, publish, states, work
from tests.support.waiting import until, until_true

from penstock import Attempt, Event, LeaseLost, Penstock, Topic, Tx
from penstock.kernel.events import LeaseWasLost, Observation
from penstock.kernel.settings import with_values


@pytest.fixture
async def ps(database_url: str, conn: Connection) -> Penstock:
    await conn.execute("create table effects (number int, kind text)")
    return Penstock(database_url)


@pytest.fixture
def topic(ps: Penstock) -> Topic[Job]:
    return ps.outbox.topic("jobs", Job)


async def take_over(conn: Connection) -> None:
    """Let every lease end and claim again, as another worker does."""
    async with conn.transaction():
        await conn.execute("update public.outbox_joint_leases set expires_at = 'epoch'")
        await conn.execute(
            "update public.outbox set lease_expires_at = 'epoch' where lease_expires_at is not null"
        )
        assert await conn.fetchval("select app.outbox_reap(true)") == 1
        assert await conn.fetch("select seq from app.outbox_claim(1, gen_random_uuid())")


async def test_a_handler_whose_lease_is_lost_leaves_no_effect(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    """The other worker is played by the test: it takes the row while the handler runs."""
    inside, go_on = asyncio.Event(), asyncio.Event()

    @topic.on()
    async def handler(event: Event[Job], tx: Tx) -> None:
        await tx.execute("insert into effects values ($1)", event.data.number)
        inside.set()
        await go_on.wait()

    await publish(conn, topic, 1)
    running = asyncio.create_task(work(ps))
    await asyncio.wait_for(inside.wait(), 10)
    await take_over(conn)
    go_on.set()
    report = await asyncio.wait_for(running, 20)
    assert (report.finished, report.stale) == (0, 1)
    assert await effects(conn) == []


async def test_event_finish_raises_when_the_lease_is_lost(
    ps: Penstock, topic: Topic[Job], conn: Connection, database_url: str
) -> None:
    raised: list[str] = []

    @topic.on()
    async def handler(event: Event[Job]) -> None:
        await take_over(conn)
        user = await asyncpg.connect(database_url)
        try:
            async with user.transaction():
                await user.execute("insert into effects values (1)")
                await event.finish(user)
        except LeaseLost as error:
            raised.append(error.code)
            raise
        finally:
            await user.close()

    await publish(conn, topic, 1)
    report = await work(ps)
    assert raised == ["PN204"]
    assert (report.finished, report.stale) == (0, 1)
    assert await effects(conn) == []


async def test_a_connection_killed_during_the_commit_is_decided_by_the_database(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    """The backend is killed inside a deferred trigger, that is, in the middle of the commit."""
    await conn.execute(
        """create function die() returns trigger language plpgsql as $$
           begin
               if new.number = 1 and not exists (select from pg_class where relname = 'survived')
               then perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5);
               end if;
               return null;
           end $$;
           create constraint trigger die after insert on effects
           deferrable initially deferred for each row execute function die()"""
    )

    @topic.on()
    async def handler(event: Event[Job], tx: Tx) -> None:
        await tx.execute("insert into effects values ($1)", event.data.number)

    await publish(conn, topic, 1)
    await work(ps)
    assert await effects(conn) == []
    assert "DELIVERED" not in await states(conn)
    await conn.execute("create table survived ()")
    await conn.execute(
        "update public.outbox set next_attempt_at = penstock.clock() where next_attempt_at"
        " is not null"
    )
    async with ps:
        task = asyncio.create_task(ps.work())
        await until(lambda: _has_effects(conn, [1]), "the effect", within_s=40)
        await until_true(lambda: ps.stop(), "running")
        await task
    assert await states(conn) == {"DELIVERED": 1}


async def _has_effects(conn: Connection, wanted: list[int]) -> bool:
    return await effects(conn) == wanted


async def test_cancelling_work_gives_back_what_has_not_ended(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    inside = asyncio.Event()
    ps.use(with_values(ps.settings, drain_s=0.0))

    @topic.on(concurrency=1)
    async def handler(event: Event[Job]) -> None:
        inside.set()
        await asyncio.Event().wait()

    await publish(conn, topic, 1, 2, 3)
    async with ps:
        task = asyncio.create_task(ps.work())
        await asyncio.wait_for(inside.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await states(conn) == {"READY": 3}
    assert await conn.fetchval("select max(attempts) from public.outbox") == 0


async def test_long_handlers_keep_their_lease(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: list[Observation] = []
    ps.subscribe(seen.append)
    await conn.execute("update penstock.queue_config set lease_s = 1 where queue = 'outbox'")

    @topic.on()
    async def handler(event: Event[Job], attempt: Attempt) -> None:
        await asyncio.sleep(2.5)  # the point is to outlive the lease, which is real time

    await publish(conn, topic, 1)
    report = await work(ps)
    assert (report.finished, report.stale) == (1, 0)
    assert not [each for each in seen if isinstance(each, LeaseWasLost)]


async def test_a_finished_row_in_an_open_transaction_holds_up_no_other_lease(
    ps: Penstock, topic: Topic[Job], conn: Connection, database_url: str
) -> None:
    """One handler finishes its event and keeps the transaction open; another outlives its lease."""
    seen: list[Observation] = []
    ps.subscribe(seen.append)
    await conn.execute("update penstock.queue_config set lease_s = 1 where queue = 'outbox'")
    other_done = asyncio.Event()

    @topic.on()
    async def handler(event: Event[Job]) -> None:
        if event.data.number == 1:
            user = await asyncpg.connect(database_url)
            async with user.transaction():
                await event.finish(user)
                await asyncio.wait_for(other_done.wait(), 10)
            await user.close()
        else:
            await asyncio.sleep(2.5)  # longer than the lease, which is real time
            other_done.set()

    await publish(conn, topic, 1, 2)
    report = await work(ps)
    assert (report.finished, report.stale) == (2, 0)
    assert await states(conn) == {"DELIVERED": 2}
    assert not [each for each in seen if isinstance(each, LeaseWasLost)]
