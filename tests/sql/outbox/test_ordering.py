"""Events of one ordering key: one at a time, in the order of publication, whatever happens."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import Leased, SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PUBLISH = "select app.outbox_publish(null, 't', '{}', p_ordering_key => 'k')"


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    return SqlOutbox(conn)


async def _one(outbox: SqlOutbox) -> Leased:
    (item,) = await outbox.claim()
    return item


async def _drained(outbox: SqlOutbox) -> list[UUID]:
    """Claim and finish until nothing comes any more, housekeeping included."""
    seen: list[UUID] = []
    for _ in range(100):
        await outbox.tend(sweep=True)
        items = await outbox.claim()
        if not items:
            return seen
        seen += [item.id for item in items]
        assert await outbox.finish(items) == []
    raise AssertionError("it does not end")


async def test_one_of_a_key_at_a_time_and_in_order(outbox: SqlOutbox) -> None:
    events = await outbox.publish(3, key="k")
    assert [await outbox.state(event) for event in events] == ["READY", "BEHIND", "BEHIND"]
    for event in events:
        item = await _one(outbox)
        assert item.id == event
        assert await outbox.claim() == []
        await outbox.finish([item])
    assert await outbox.claim() == []


async def test_keys_do_not_hold_each_other_up(outbox: SqlOutbox) -> None:
    tenant = uuid4()
    await outbox.publish(2, key="a")
    await outbox.publish(2, key="b")
    await outbox.publish(2)
    await outbox.publish(1, key="a", tenant=tenant)
    assert len(await outbox.claim()) == 5


async def test_plain_sql_gets_the_same_order(conn: Session, outbox: SqlOutbox) -> None:
    await conn.execute("set role penstock_outbox_ingest")
    await conn.execute(
        """insert into public.outbox (topic, payload, ordering_key)
           select 't', to_jsonb(n), 'k' from generate_series(1, 5) as n"""
    )
    await conn.execute("reset role")
    order = await conn.fetch("select payload from public.outbox order by seq")
    assert [row[0] for row in order] == ["1", "2", "3", "4", "5"]
    seen = await _drained(outbox)
    assert seen == [
        row[0]
        for row in await conn.fetch("select id from public.outbox_archive order by payload::int")
    ]


async def _retried(outbox: SqlOutbox, item: Leased) -> None:
    await outbox.fail([item], delay_s=0)
    await outbox.tend()


async def _released(outbox: SqlOutbox, item: Leased) -> None:
    await outbox.release([item])


async def _reaped(outbox: SqlOutbox, item: Leased) -> None:
    del item
    await outbox.advance(timedelta(hours=1))
    await outbox.tend()


async def _replayed(outbox: SqlOutbox, item: Leased) -> None:
    await outbox.fail([item], "reject")
    await outbox.conn.fetch("select app.outbox_replay($1, 'fixed')", [item.id])


@pytest.mark.parametrize("back", [_retried, _released, _reaped, _replayed])
async def test_what_comes_back_goes_first_again(
    outbox: SqlOutbox, back: Callable[[SqlOutbox, Leased], Awaitable[None]]
) -> None:
    await outbox.make_clock_settable()
    events = await outbox.publish(3, key="k")
    await back(outbox, await _one(outbox))
    assert await _drained(outbox) == events


@pytest.mark.parametrize("verdict", ["retry", "reject", "unknown"])
async def test_a_head_that_fails_blocks_its_key_and_is_shown(
    conn: Session, outbox: SqlOutbox, verdict: str
) -> None:
    events = await outbox.publish(3, key="k")
    (free,) = await outbox.publish(1, key="other")
    items = await outbox.claim()
    await outbox.fail([item for item in items if item.id == events[0]], verdict, delay_s=60)
    await outbox.finish([item for item in items if item.id == free])
    assert await outbox.claim() == []
    (row,) = await conn.fetch("select * from app.outbox_blocked_keys")
    states = {"retry": "WAITING", "reject": "DEAD", "unknown": "HELD"}
    assert (row["ordering_key"], row["head_id"]) == ("k", events[0])
    assert (row["state"], row["behind"], row["attempts"]) == (states[verdict], 2, 1)


async def _operator(conn: Session, verb: str) -> list[asyncpg.Record]:
    await conn.execute("set role penstock_operator")
    rows = await conn.fetch(f"select * from app.{verb}(array['k', 'none'], 'because')")
    await conn.execute("reset role")
    return rows


@pytest.mark.parametrize("verdict", ["retry", "reject", "unknown"])
@pytest.mark.parametrize(("verb", "left"), [("outbox_park", "DEAD"), ("outbox_skip", "DISCARDED")])
async def test_an_operator_lets_a_blocked_key_go_on(
    conn: Session, outbox: SqlOutbox, verdict: str, verb: str, left: str
) -> None:
    events = await outbox.publish(3, key="k")
    await outbox.fail([await _one(outbox)], verdict, delay_s=60)
    (row,) = await _operator(conn, verb)
    assert (row["ordering_key"], row["id"]) == ("k", events[0])
    logged = await conn.fetchrow("select * from audit.audit_logs where id = $1", row["audit_id"])
    assert logged is not None
    assert logged["operation"] == verb.removeprefix("outbox_")
    expected = "HELD" if (verdict, verb) == ("unknown", "outbox_park") else left
    assert await outbox.state(events[0]) == expected
    assert await _drained(outbox) == events[1:]
    assert await conn.fetch("select * from app.outbox_blocked_keys") == []


async def test_a_head_in_flight_is_not_parked(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.publish(2, key="k")
    await outbox.claim()
    assert await _operator(conn, "outbox_park") == []


async def test_a_parked_event_is_replayed_after_those_that_went_on(
    conn: Session, outbox: SqlOutbox
) -> None:
    events = await outbox.publish(4, key="k")
    await outbox.fail([await _one(outbox)], "reject")
    await _operator(conn, "outbox_park")
    await outbox.finish([await _one(outbox)])
    await conn.fetch("select app.outbox_replay($1, 'fixed')", [events[0]])
    assert await _drained(outbox) == [*events[2:], events[0]]


async def test_cancelled_and_discarded_events_let_the_next_go(
    conn: Session, outbox: SqlOutbox
) -> None:
    events = await outbox.publish(5, key="k")
    cancel = "select app.outbox_cancel($1, 'no longer wanted')"
    assert await conn.fetchval(cancel, events[2])
    assert await conn.fetchval(cancel, events[0])
    item = await _one(outbox)
    assert item.id == events[1]
    assert not await conn.fetchval(cancel, events[1])
    await outbox.fail([item], "reject")
    await conn.fetch("select app.outbox_discard($1, 'hopeless')", [events[1]])
    assert await _drained(outbox) == events[3:]


async def test_a_time_of_delivery_holds_the_key_back_when_its_turn_comes(
    outbox: SqlOutbox,
) -> None:
    await outbox.make_clock_settable()
    (first,) = await outbox.publish(1, key="k")
    (later,) = await outbox.publish(1, key="k", after=timedelta(hours=1))
    (last,) = await outbox.publish(1, key="k")
    assert await _drained(outbox) == [first]
    assert [await outbox.state(event) for event in (later, last)] == ["WAITING", "BEHIND"]
    await outbox.advance(timedelta(hours=2))
    assert await _drained(outbox) == [later, last]


async def test_a_late_commit_is_not_overtaken(
    database_url: str, conn: Session, outbox: SqlOutbox
) -> None:
    """Without the key's lock the second producer's event would go out first."""
    async with Stage(database_url) as stage:
        slow = await stage.session("slow")
        quick = await stage.session("quick")
        await slow.begin()
        first = await slow.value(PUBLISH)
        step = quick.start(PUBLISH)
        await stage.until_blocked(quick, step)
        assert await _drained(outbox) == []
        await slow.commit()
        ((second,),) = await step.done()
    assert await _drained(outbox) == [first, second]
    assert await conn.fetchval("select count(*) from public.outbox_key_checks") == 0


async def test_a_producer_that_saw_the_head_which_is_being_finished_is_not_forgotten(
    database_url: str, conn: Session, outbox: SqlOutbox
) -> None:
    (head,) = await outbox.publish(1, key="k")
    item = await _one(outbox)
    async with Stage(database_url) as stage:
        producer = await stage.session("producer")
        await producer.begin()
        event = await producer.value(PUBLISH)
        await outbox.finish([item])  # sees nobody behind, and does not wait for the producer
        await outbox.tend(sweep=True)
        await producer.commit()
    assert await outbox.state(head) == "DELIVERED"
    assert await outbox.claim() == []
    assert await _drained(outbox) == [event]
    assert await conn.fetchval("select count(*) from public.outbox_key_checks") == 0


async def test_a_producer_waits_for_a_finish_in_somebodys_transaction(
    database_url: str, conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(1, key="k")
    item = await _one(outbox)
    async with Stage(database_url) as stage:
        handler = await stage.session("handler")
        producer = await stage.session("producer")
        await handler.begin()
        await handler.run("select app.outbox_finish_strict($1, $2)", [item.seq], [item.token])
        step = producer.start(PUBLISH)
        await stage.until_blocked(producer, step)
        await handler.commit()
        ((event,),) = await step.done()
    assert await outbox.state(event) == "READY"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_an_old_snapshot_does_not_break_the_order(
    database_url: str, outbox: SqlOutbox, isolation: str
) -> None:
    async with Stage(database_url) as stage:
        old = await stage.session("old")
        await old.begin(isolation)
        await old.value("select count(*) from public.outbox")
        (first,) = await outbox.publish(1, key="k")
        second = await old.value(PUBLISH)
        await old.commit()
    assert await _drained(outbox) == [first, second]


async def test_a_cancelled_event_that_is_next_holds_up_nobody(
    database_url: str, outbox: SqlOutbox
) -> None:
    """The finish meets a row that a cancelling transaction holds: it neither waits nor skips it."""
    events = await outbox.publish(3, key="k")
    item = await _one(outbox)
    async with Stage(database_url) as stage:
        canceller = await stage.session("canceller")
        await canceller.begin()
        assert await canceller.value("select app.outbox_cancel($1, 'no')", events[1])
        await outbox.finish([item])
        assert await outbox.claim() == []
        await canceller.rollback()
    assert await _drained(outbox) == events[1:]


async def test_the_index_lets_no_second_of_a_key_into_flight(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(2, key="k")
    await outbox.claim()
    with pytest.raises(asyncpg.UniqueViolationError):
        await conn.execute(
            """update public.outbox set turn = null, processing_token = gen_random_uuid(),
               lease_expires_at = now() where turn is not null"""
        )


async def test_the_net_finds_a_line_without_a_head(conn: Session, outbox: SqlOutbox) -> None:
    events = await outbox.publish(3, key="k")
    await conn.execute("delete from public.outbox where id = $1", events[0])
    assert await _drained(outbox) == []
    assert await conn.fetchval("select app.outbox_check_keys()") == 1
    assert await _drained(outbox) == events[1:]


class _Race:
    """Producers that hold their transactions open or abort, and workers that fail, at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.producing = 4
        self.published: dict[str, list[int]] = {}
        self.handled: list[int] = []
        self.flying: set[str] = set()

    async def produce(self, dice: random.Random) -> None:
        conn: Any = await asyncpg.connect(self.url)
        for _ in range(40):
            key = f"k{dice.randrange(4)}"
            transaction = conn.transaction()
            await transaction.start()
            event = await conn.fetchval(PUBLISH.replace("'k'", f"'{key}'"))
            number = await conn.fetchval("select seq from public.outbox where id = $1", event)
            await conn.execute("select pg_sleep($1)", dice.choice([0, 0, 0.005, 0.05]))
            if dice.random() < 0.15:
                await transaction.rollback()
                continue
            # Nobody else can hold the key's lock here, so this list is in the order of commits.
            self.published.setdefault(key, []).append(number)
            await transaction.commit()
        self.producing -= 1
        await conn.close()

    async def work(self, dice: random.Random) -> None:
        conn: Any = await asyncpg.connect(self.url)
        outbox = SqlOutbox(conn)
        while self.producing or len(self.handled) < sum(map(len, self.published.values())):
            items = await outbox.claim(dice.randrange(1, 5))
            rows = await conn.fetch(
                "select seq, ordering_key from public.outbox where seq = any($1)",
                [item.seq for item in items],
            )
            keys = {row[0]: row[1] for row in rows}
            assert not self.flying & set(keys.values()), "two of one key in flight"
            self.flying |= set(keys.values())
            await asyncio.sleep(0)
            self.flying -= set(keys.values())
            for item in items:
                if dice.random() < 0.2:
                    await outbox.fail([item], delay_s=0)
                else:
                    self.handled.append(item.seq)
                    await outbox.finish([item])
            if not items:
                await outbox.tend()
        await conn.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_order_holds_with_late_commits_aborts_and_retries(
    database_url: str, conn: Session, seed: int
) -> None:
    await conn.execute("update penstock.position set sweep_ms = 50 where name = 'outbox'")
    race = _Race(database_url)
    await asyncio.wait_for(
        asyncio.gather(
            *(race.produce(random.Random(seed * 100 + n)) for n in range(4)),
            *(race.work(random.Random(seed * 200 + n)) for n in range(3)),
        ),
        60,
    )
    everything = sorted(number for numbers in race.published.values() for number in numbers)
    assert sorted(race.handled) == everything, "each once, none lost"
    for numbers in race.published.values():
        assert numbers == sorted(numbers)
        mine = set(numbers)
        assert [number for number in race.handled if number in mine] == numbers
    assert await conn.fetchval("select count(*) from public.outbox") == 0
