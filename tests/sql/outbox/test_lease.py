"""outbox_extend, outbox_release, outbox_reap: how a lease is kept, given back and lost."""

from datetime import timedelta
from uuid import UUID

import asyncpg
from tests.support.outbox import SqlOutbox


async def test_extending_keeps_a_lease_alive(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    (event,) = await outbox.publish(1)
    items = await outbox.claim()
    for _ in range(3):
        await outbox.advance(timedelta(seconds=20))
        assert await outbox.extend(items) == []
        assert (await outbox.tend())[0] == 0
    assert await outbox.state(event) == "LEASED"
    await outbox.advance(timedelta(seconds=31))
    assert (await outbox.tend())[0] == 1


async def test_extending_tells_which_leases_are_lost(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(3)
    items = await outbox.claim()
    await outbox.finish(items[:1])
    await outbox.release(items[1:2])
    await outbox.claim()
    assert sorted(await outbox.extend(items)) == sorted(item.seq for item in items[:2])


async def test_a_release_does_not_count_as_an_attempt(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.policy(max_attempts=1)
    await outbox.publish(1)
    for epoch in (1, 2, 3):
        items = await outbox.claim()
        assert (items[0].attempts, items[0].epoch) == (1, epoch)
        assert await outbox.release(items) == 1
        assert await outbox.release(items) == 0
    outcomes = await conn.fetch("select outcome from public.outbox_attempts")
    assert [row["outcome"] for row in outcomes] == ["RELEASED"] * 3


async def test_a_lease_that_ended_counts_as_an_attempt_and_in_the_end_kills(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(max_attempts=3)
    (event,) = await outbox.publish(1)
    for state in ("READY", "WAITING", "DEAD"):
        assert len(await outbox.claim()) == 1
        await outbox.advance(timedelta(seconds=31))
        assert (await outbox.tend())[0] == 1
        assert await outbox.state(event) == state
        await outbox.tend(sweep=True)
    assert await conn.fetchval("select error_code from public.outbox") == "ZOMBIE_LIMIT"
    rows = await conn.fetch("select outcome from public.outbox_attempts order by lease_epoch")
    assert [row["outcome"] for row in rows] == ["ZOMBIE", "ZOMBIE", "ZOMBIE"]


async def test_reaping_takes_only_what_has_expired(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(1)
    await outbox.claim()
    await outbox.advance(timedelta(seconds=20))
    await outbox.publish(1)
    (young,) = await outbox.claim()
    await outbox.advance(timedelta(seconds=15))
    assert (await outbox.tend())[0] == 1
    assert await outbox.state(young.id) == "LEASED"


async def test_a_lease_is_reaped_after_the_database_clock_was_set_back(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    await outbox.advance(timedelta(seconds=60))
    await outbox.tend()
    await outbox.advance(-timedelta(hours=1))
    (event,) = await outbox.publish(1)
    assert len(await outbox.claim()) == 1
    await outbox.advance(timedelta(seconds=31))
    assert (await outbox.tend())[0] == 1
    assert await outbox.state(event) == "READY"


async def test_a_retry_comes_back_after_the_database_clock_was_set_back(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.advance(timedelta(hours=1))
    await outbox.tend()
    await outbox.advance(-timedelta(hours=1))
    await outbox.publish(1)
    await outbox.fail(await outbox.claim(), delay_s=5)
    await outbox.advance(timedelta(seconds=6))
    assert (await outbox.tend())[1] == 1


async def test_what_housekeeping_found_and_an_abort_undid_is_found_again(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Floors are sequences: they stay where they are when the transaction is undone."""
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(2)
    waiting, leased = await outbox.claim()
    await outbox.fail([waiting], delay_s=0)
    await outbox.advance(timedelta(minutes=10))
    for _ in range(2):
        transaction = conn.transaction()
        await transaction.start()
        assert await outbox.tend() == (1, 1, 0)
        await transaction.rollback()
    assert await outbox.tend() == (1, 1, 0)
    assert {item.seq for item in await outbox.claim()} == {waiting.seq, leased.seq}


async def test_housekeeping_twice_in_one_undone_transaction_loses_nothing(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(2)
    waiting, _ = await outbox.claim()
    await outbox.fail([waiting], delay_s=0)
    await outbox.advance(timedelta(minutes=10))
    transaction = conn.transaction()
    await transaction.start()
    assert await outbox.tend() == (1, 1, 0)
    assert len(await outbox.claim()) == 2
    assert await outbox.tend() == (0, 0, 0)
    await transaction.rollback()
    assert (await outbox.tend())[:2] == (1, 1)
    assert len(await outbox.claim()) == 2


async def _crash(outbox: SqlOutbox) -> set[UUID]:
    """A worker claims all it can get, and dies."""
    ids = {item.id for item in await outbox.claim()}
    await outbox.advance(timedelta(seconds=31))
    await outbox.tend()
    return ids


async def test_suspects_of_killing_their_worker_run_one_at_a_time(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Neighbours of a poisonous event lose half of their attempts at most."""
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(max_attempts=3)
    ids = await outbox.publish(4)
    poison = ids[1]
    assert await _crash(outbox) == set(ids)
    assert await _crash(outbox) == set(ids), "after one crash all come back at once"
    assert await outbox.claim() == []
    for _ in range(8):
        await outbox.tend(sweep=True)
        claimed = await outbox.claim()
        assert len(claimed) <= 1, "suspects are apart from each other"
        if claimed and claimed[0].id == poison:
            await outbox.advance(timedelta(seconds=31))
            await outbox.tend()
        else:
            await outbox.finish(claimed)
    states = {event: await outbox.state(event) for event in ids}
    assert states == dict.fromkeys(ids, "DELIVERED") | {poison: "DEAD"}
    assert await conn.fetchval("select error_code from app.outbox_dead") == "ZOMBIE_LIMIT"


async def test_a_suspect_that_fails_in_good_order_is_no_suspect(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.policy(max_attempts=4)
    await outbox.publish(2)
    await _crash(outbox)
    await _crash(outbox)
    await outbox.tend(sweep=True)
    (one,) = await outbox.claim()
    await outbox.tend(sweep=True)
    assert await outbox.claim() == [], "the other one waits while this one is under way"
    await outbox.fail([one], delay_s=0)
    await outbox.tend(sweep=True)
    assert len(await outbox.claim()) == 2


async def _suspects(outbox: SqlOutbox, *topics: str) -> None:
    """One suspect of each topic, waiting."""
    await outbox.make_clock_settable()
    await outbox.policy(max_attempts=2)
    for topic in topics:
        await outbox.publish(1, topic=topic)
    await _crash(outbox)


async def test_a_suspect_that_nobody_takes_does_not_block_other_topics(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await _suspects(outbox, "unserved", "served", "served")
    await outbox.tend(sweep=True)
    for _ in range(2):
        await outbox.tend(sweep=True)
        (item,) = await outbox.claim(topics=["served"])
        await outbox.finish([item])
        await outbox.tend(sweep=True)


async def test_a_suspect_of_a_paused_topic_waits_and_blocks_nobody(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await _suspects(outbox, "stopped", "served")
    await conn.execute("select penstock.pause_target('topic/stopped', 'because')")
    await outbox.tend(sweep=True)
    waiting = "select topic from public.outbox where next_attempt_at is not null"
    assert [row["topic"] for row in await conn.fetch(waiting)] == ["stopped"]
    assert [item.topic for item in await outbox.claim()] == ["served"]
    await conn.execute("select penstock.resume_target('topic/stopped', 'because')")
    await outbox.tend(sweep=True)
    assert [item.topic for item in await outbox.claim()] == ["stopped"]


async def test_the_net_finds_a_suspect_below_the_floor(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await _suspects(outbox, "t")
    await conn.execute("update public.outbox set next_attempt_at = '2000-01-01'")
    await conn.execute(
        "select setval('penstock.outbox_due', penstock.milliseconds(penstock.clock()) - 1000)"
    )
    assert await conn.fetchval("select app.outbox_bring_suspect(false)") == 0
    assert await conn.fetchval("select app.outbox_bring_suspect(true)") == 1


async def test_what_falls_due_while_the_clock_was_set_back_is_not_hidden_afterwards(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Floors come down with the clock: once it has passed them again, they would hide events."""
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.advance(timedelta(hours=1))
    await outbox.tend(sweep=True)
    await outbox.advance(timedelta(hours=-1))
    (event,) = await outbox.publish(1, after=timedelta(minutes=30))
    await outbox.tend()
    await outbox.advance(timedelta(minutes=61))
    assert (await outbox.tend())[1] == 1
    assert await outbox.state(event) == "READY"
