"""The pump on a real database, with one thing wrong at a time."""

import asyncio
from datetime import timedelta
from time import monotonic
from uuid import UUID

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox
from tests.support.proxy import Proxy
from tests.support.pumping import Calls, TroubledQueue, pumping
from tests.support.waiting import until, until_true

from penstock.kernel.database import Database
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.events import Disconnected, Events, FinishRefused, LeaseWasLost, Reconnected
from penstock.kernel.handler import Answer
from penstock.kernel.limits import Limits
from penstock.kernel.queue import Item
from penstock.kernel.scheduler import Scheduler
from penstock.kernel.verdict import DONE, Retry
from penstock.kernel.wakeup import Listener, Wakeup

PASSING = [
    asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
    asyncpg.ReadOnlySQLTransactionError("cannot execute in a read-only transaction"),
    asyncpg.DiskFullError("could not extend file"),
    asyncpg.LockNotAvailableError("canceling statement due to lock timeout"),
]


async def _delivered(outbox: SqlOutbox, event: UUID) -> bool:
    return await outbox.state(event) == "DELIVERED"


@pytest.mark.parametrize("verb", ["claim", "finish", "ready", "tend"])
async def test_what_passes_is_waited_out(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]", verb: str
) -> None:
    outbox = SqlOutbox(conn)
    queue = TroubledQueue()
    queue.errors[verb] = [*PASSING, DatabaseUnreachable("cut")]
    async with pumping(database_url, Calls(), queue=queue) as running:
        (event,) = await outbox.publish(1)
        await until(lambda: _delivered(outbox, event), "it is delivered in spite of all")
        await until_true(lambda: not queue.errors[verb], "each error was met")
        (event,) = await outbox.publish(1)
        await until(lambda: _delivered(outbox, event), "the pump still works")
        if verb in ("claim", "finish"):
            assert running.saw(Disconnected) == 5
        assert running.saw(Reconnected) == (1 if verb == "claim" else 0)
        assert (await running.stop()).finished == 2


@pytest.mark.parametrize("verb", ["claim", "tend"])
async def test_a_mistake_ends_the_pump_instead_of_half_of_it(database_url: str, verb: str) -> None:
    queue = TroubledQueue()
    queue.errors[verb] = [ValueError("a bug")]
    async with pumping(database_url, Calls(), queue=queue) as running:
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.wait_for(running.task, 5)


async def test_an_item_taken_over_from_oneself_keeps_its_new_lease(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """The first attempt loses its lease unnoticed; its end must not drop the second one."""
    outbox = SqlOutbox(conn)
    await outbox.policy(lease_s=1)
    gates = [asyncio.Event(), asyncio.Event()]
    queue = TroubledQueue()
    queue.always["extend"] = DatabaseUnreachable("no extension gets through")

    async def answering(item: Item) -> Answer:
        await gates[item.attempt - 1].wait()
        return DONE

    handler = Calls(answering)
    async with pumping(database_url, handler, queue=queue) as running:
        (event,) = await outbox.publish(1)
        await until_true(lambda: len(handler.seen) == 2, "the same worker took it over")
        queue.always.clear()
        gates[0].set()
        await until_true(lambda: running.saw(FinishRefused) == 1, "the first one came too late")
        first, second = handler.seen
        assert first.lease.lost
        extended_from = second.lease.deadline
        await until_true(lambda: second.lease.deadline > extended_from + 1, "it is kept alive")
        gates[1].set()
        await until(lambda: _delivered(outbox, event), "the second attempt delivers")
        assert len(handler.seen) == 2
    assert await conn.fetchval("select count(*) from penstock.late_results") == 1


async def test_a_silent_connection_does_not_cost_the_leases(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.policy(lease_s=2)
    gate = asyncio.Event()

    async def answering(_: Item) -> Answer:
        await gate.wait()
        return DONE

    handler = Calls(answering)
    async with Proxy(database_url) as proxy, pumping(proxy.url, handler) as running:
        (event,) = await outbox.publish(1)
        await until_true(
            lambda: any(link.carried(b"outbox_extend") for link in proxy.links), "one extension"
        )
        (link,) = [link for link in proxy.links if link.carried(b"outbox_extend")]
        proxy.stall(link)
        epoch = handler.seen[0].lease.epoch
        deadline = handler.seen[0].lease.deadline
        await until_true(
            lambda: handler.seen[0].lease.deadline > deadline + 3, "extended by another connection"
        )
        assert running.saw(LeaseWasLost) == 0
        gate.set()
        await until(lambda: _delivered(outbox, event), "it is delivered")
        assert await conn.fetchval("select lease_epoch from outbox_archive") == epoch == 1


async def test_a_lease_made_shorter_at_run_time_is_kept(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    gate = asyncio.Event()

    async def answering(_: Item) -> Answer:
        await gate.wait()
        return DONE

    handler = Calls(answering)
    async with pumping(database_url, handler) as running:
        await outbox.policy(lease_s=2)
        (event,) = await outbox.publish(1)
        await until_true(lambda: handler.seen, "claimed")
        started = monotonic()
        await until_true(lambda: monotonic() > started + 4.5, "two leases have passed")
        assert running.saw(LeaseWasLost) == 0
        assert await outbox.state(event) == "LEASED"
        gate.set()
        await until(lambda: _delivered(outbox, event), "it is delivered")
    assert len(handler.seen) == 1


async def test_the_answer_to_a_finish_can_be_lost(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """The finish commits and its answer is cut off: repeating it is neither stale nor a second."""
    outbox = SqlOutbox(conn)
    handler = Calls()
    async with Proxy(database_url) as proxy, pumping(proxy.url, handler) as running:
        (event,) = await outbox.publish(1)
        await until(lambda: _delivered(outbox, event), "warm: statements are prepared")
        event = UUID(int=77)
        number = await conn.fetchval(
            "select setval(pg_get_serial_sequence('public.outbox', 'seq'), 7777777777777) + 1"
        )
        proxy.swallow_answer_to = lambda data: number.to_bytes(8) in data
        await conn.execute("select app.outbox_publish($1, 't', '{}')", event)
        await until_true(lambda: proxy.swallowed == 1, "the answer was swallowed")
        await until_true(lambda: running.saw(Disconnected) >= 1, "the worker noticed")
        report = await running.stop()
    assert (report.finished, report.stale) == (2, 0)
    assert handler.ids.count(event) == 1
    assert await conn.fetchval("select count(*) from outbox_archive where id = $1", event) == 1
    assert await conn.fetchval("select count(*) from penstock.late_results") == 0


async def test_a_connection_that_dies_after_its_work_is_no_error(database_url: str) -> None:
    """The pool tidies a connection up when it comes back; a cut in that moment changes nothing."""
    async with Proxy(database_url) as proxy:
        database = Database(proxy.url, size=1)
        await database.open()
        async with database.transaction() as borrowed:
            assert await borrowed.fetchval("select 1") == 1
            proxy.swallow_answer_to = lambda data: b"unlisten" in data.lower()
        assert proxy.swallowed == 1
        async with database.connection() as borrowed:
            assert await borrowed.fetchval("select 2") == 2
        await database.close()


async def test_a_deadline_holds_while_the_database_is_away(database_url: str) -> None:
    queue = TroubledQueue()
    queue.always["claim"] = DatabaseUnreachable("away")
    limits = Limits(deadline_s=0.5, until_idle=True)
    async with pumping(database_url, Calls(), queue=queue, limits=limits) as running:
        started = monotonic()
        await asyncio.wait_for(running.task, 10)
        assert monotonic() - started < 5


async def test_one_connection_serves_two_hundred_items_at_a_time(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Handlers wait together, longer than a lease; renewals have a connection of their own."""
    outbox = SqlOutbox(conn)
    await outbox.policy(lease_s=1)
    await conn.execute(
        "insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 200)"
    )
    gate = asyncio.Event()

    async def answering(_: Item) -> Answer:
        await gate.wait()
        return DONE

    handler = Calls(answering, concurrency=200)
    async with pumping(database_url, handler, size=1) as running:
        await until_true(lambda: len(handler.seen) == 200, "all two hundred are running")
        started = monotonic()
        await until_true(lambda: monotonic() > started + 2.5, "two leases have passed")
        gate.set()
        await until_true(lambda: running.pump.held_count == 0, "all are written")
        report = await running.stop()
    assert (report.finished, report.stale) == (200, 0)
    assert running.saw(LeaseWasLost) == 0
    assert len(handler.seen) == 200


async def test_a_paused_topic_does_not_keep_the_pump_spinning(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    await conn.execute("select penstock.pause_target('topic/t', 'test')")
    await outbox.publish(5)
    count = "select sum(calls) from pg_stat_user_functions where funcname = 'outbox_claim'"
    await conn.execute(
        "do $$ begin execute format('alter database %I set track_functions = ''all''',"
        " current_database()); end $$"
    )
    async with pumping(database_url, Calls()) as running:
        started = monotonic()
        await until_true(lambda: monotonic() > started + 1, "a second has passed")
        await running.stop()
    assert 1 <= await conn.fetchval(count) <= 130


async def test_a_failing_job_does_not_end_the_scheduler(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await conn.execute("delete from penstock.schedule")
    for job in ("bad", "good"):
        await conn.execute("select penstock.put_job($1, 60)", job)
    ran: list[str] = []

    async def bad(_: object) -> None:
        ran.append("bad")
        raise ValueError("a mistake in the job")

    async def good(_: object) -> None:
        ran.append("good")

    database = Database(database_url, size=2)
    await database.open()
    scheduler = Scheduler(database, {"bad": bad, "good": good}, Events())
    assert await scheduler.run_due() == 2
    assert sorted(ran) == ["bad", "good"]
    rows = await conn.fetch("select job, last_error, run_count from penstock.schedule order by job")
    assert [tuple(row) for row in rows] == [
        ("bad", "ValueError: a mistake in the job", 1),
        ("good", None, 1),
    ]
    assert await scheduler.run_due() == 0
    await database.close()


async def test_a_listener_behind_a_pooler_gives_up_and_polling_goes_on(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.policy(notify=True)
    events = Events()
    seen: list[str] = []
    events.subscribe(lambda one: seen.append(one.name))
    async with Proxy(database_url) as proxy, pumping(proxy.url, Calls()) as running:
        proxy.swallow_notifications = True
        bells = {"penstock_outbox": running.pump.wakeup.ring}
        listener = Listener(Database(proxy.url), bells, events)
        await asyncio.wait_for(listener.run(), 10)
        assert seen == ["listen_unavailable"]
        assert not listener.available
        (event,) = await outbox.publish(1)
        await until(lambda: _delivered(outbox, event), "polling delivers", within_s=3)


async def test_a_killed_listener_comes_back_and_looks(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.policy(notify=True)
    rings: list[float] = []
    listener = Listener(
        Database(database_url, application_name="ears"),
        {"penstock_outbox": lambda _: rings.append(monotonic())},
        Events(),
    )
    task = asyncio.create_task(listener.run())
    await until_true(lambda: listener.available, "it listens")
    await until_true(lambda: len(rings) == 1, "it looked once")
    await outbox.publish(1)
    await until_true(lambda: len(rings) == 2, "it heard the NOTIFY")
    await conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ears'"
    )
    await outbox.publish(1)
    await until_true(lambda: len(rings) >= 3 and listener.available, "it is back and looked again")
    heard = len(rings)
    await outbox.publish(1)
    await until_true(lambda: len(rings) > heard, "it hears again")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_retry_waits_for_what_the_handler_asked(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)

    async def answering(item: Item) -> Answer:
        return DONE if item.attempt > 1 else Retry(after=timedelta(seconds=0.5))

    handler = Calls(answering)
    async with pumping(database_url, handler) as running:
        (event,) = await outbox.publish(1)
        started = monotonic()
        await until(lambda: _delivered(outbox, event), "the second attempt delivers")
        assert monotonic() - started >= 0.5
        assert (await running.stop()).retried == 1


async def test_the_first_to_come_is_handled_before_more_is_asked_for(
    database_url: str,
    conn: "asyncpg.Connection[asyncpg.Record]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = Calls()
    handled: list[int] = []
    monkeypatch.setattr(Wakeup, "looking", lambda _: handled.append(len(handler.seen)))
    await SqlOutbox(conn).publish(1)
    async with pumping(database_url, handler) as running:
        await until_true(lambda: len(handled) >= 2, "it has claimed twice")
        await running.stop()
    assert handled[:2] == [0, 1]
