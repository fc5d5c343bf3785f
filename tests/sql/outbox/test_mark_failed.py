"""app.outbox_mark_failed: each verdict and its state, attempts and their limit."""

from datetime import timedelta

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox


async def _attempts(conn: "asyncpg.Connection[asyncpg.Record]") -> list[tuple[int, str]]:
    rows = await conn.fetch(
        "select lease_epoch, outcome from public.outbox_attempts order by lease_epoch, outcome"
    )
    return [(row["lease_epoch"], row["outcome"]) for row in rows]


@pytest.mark.parametrize(
    ("verdict", "state", "outcome"),
    [
        ("retry", "WAITING", "RETRY"),
        ("reject", "DEAD", "REJECT"),
        ("unknown", "HELD", "UNKNOWN"),
        ("check", "WAITING", "RETRY"),
    ],
)
async def test_each_verdict_has_its_state_and_its_record(
    conn: "asyncpg.Connection[asyncpg.Record]", verdict: str, state: str, outcome: str
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    assert await outbox.fail(await outbox.claim(), verdict, delay_s=60) == []
    assert await outbox.state(event) == state
    assert await _attempts(conn) == [(1, outcome)]
    row = await conn.fetchrow("select error_code, error from public.outbox")
    assert row is not None
    assert tuple(row) == ("BROKEN", "it did not work")


async def test_a_retry_waits_for_its_delay(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    (event,) = await outbox.publish(1)
    await outbox.fail(await outbox.claim(), delay_s=30)
    await outbox.advance(timedelta(seconds=29))
    await outbox.tend()
    assert await outbox.claim() == []
    await outbox.advance(timedelta(seconds=2))
    assert (await outbox.tend())[1] == 1
    assert [item.id for item in await outbox.claim()] == [event]


async def test_used_up_attempts_are_dead(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    outbox = SqlOutbox(conn)
    await outbox.policy(max_attempts=3)
    (event,) = await outbox.publish(1)
    for attempt in (1, 2, 3):
        items = await outbox.claim()
        assert items[0].attempts == attempt
        await outbox.fail(items)
        await outbox.tend()
    assert await outbox.state(event) == "DEAD"
    assert await conn.fetchval("select error_code from app.outbox_dead") == "MAX_ATTEMPTS"
    assert await _attempts(conn) == [(1, "RETRY"), (2, "RETRY"), (3, "RETRY")]
    assert await outbox.claim() == []


async def test_a_stale_failure_changes_nothing_and_is_kept(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(2)
    items = await outbox.claim()
    await outbox.advance(timedelta(minutes=2))
    await outbox.tend()
    again = await outbox.claim(1)
    before = await conn.fetch("select * from public.outbox order by seq")
    assert sorted(await outbox.fail(items, "reject")) == sorted(item.seq for item in items)
    assert await conn.fetch("select * from public.outbox order by seq") == before
    assert await conn.fetchval("select count(*) from penstock.late_results") == 2
    assert await outbox.fail(again) == []


async def test_a_failure_repeated_after_a_lost_answer_is_not_stale(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(3)
    items = await outbox.claim()
    assert await outbox.fail(items[:2]) == []
    assert await outbox.fail(items) == []
    assert await conn.fetchval("select count(*) from public.outbox_attempts") == 3
    assert await conn.fetchval("select count(*) from penstock.late_results") == 0


async def test_check_is_content_with_what_the_handler_finished_itself(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(2)
    items = await outbox.claim()
    await outbox.finish(items[:1])
    assert await outbox.fail(items, "check") == []
    assert await outbox.state(items[0].id) == "DELIVERED"
    assert await outbox.state(items[1].id) == "WAITING"


async def test_verdicts_of_one_call_are_told_apart(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    ids = await outbox.publish(3)
    items = await outbox.claim()
    await conn.execute(
        "select app.outbox_mark_failed($1, $2, $3, $4, $5, $6, $7)",
        [item.seq for item in items],
        [item.id for item in items],
        [item.token for item in items],
        ["retry", "reject", "unknown"],
        [5.0, 0.0, 0.0],
        ["A", "B", "C"],
        ["x" * 5000, "e", None],
    )
    assert [await outbox.state(event) for event in ids] == ["WAITING", "DEAD", "HELD"]
    assert await conn.fetchval("select max(length(error)) from public.outbox") == 2000


async def test_a_verdict_that_does_not_exist_ends_nothing(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    items = await outbox.claim()
    with pytest.raises(asyncpg.CheckViolationError):
        await outbox.fail(items, "maybe")
    assert await outbox.state(event) == "LEASED"
