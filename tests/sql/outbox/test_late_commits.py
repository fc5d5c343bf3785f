"""Positions under one interleaving each: what could be passed over, and the rule that prevents it.

Every case is run twice: as installed, where the event comes back, and with the rule broken, where
it must be lost. A case that loses nothing without its rule would prove nothing with it.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.support import mutants
from tests.support.interleave import Session, Stage
from tests.support.outbox import SWEEP_DUE, SqlOutbox

Case: TypeAlias = Callable[[Stage, SqlOutbox], Awaitable[UUID]]
PUBLISH = "select app.outbox_publish(null, 'late', '{}')"
CLAIM = "select id from app.outbox_claim(100, gen_random_uuid())"


async def _begin_and_publish(stage: Stage) -> tuple[Session, UUID]:
    producer = await stage.session("producer")
    await producer.begin()
    return producer, await producer.value(PUBLISH)


async def _pass_by(outbox: SqlOutbox, rounds: int = 3) -> None:
    """Events come and go and housekeeping runs, so that watermark and floor want to rise."""
    for _ in range(rounds):
        await outbox.publish(2)
        await outbox.finish(await outbox.claim())
        await outbox.tend(sweep=True)
        await outbox.tend(sweep=True)


async def _mark(outbox: SqlOutbox) -> None:
    """The watermark is noted as the mark, and a later transaction has noted its id."""
    await outbox.conn.execute(
        "select setval('penstock.outbox_mark', last_value) from penstock.outbox_wm"
    )
    await outbox.conn.execute(
        "select setval('penstock.outbox_xid', pg_current_xact_id()::text::bigint)"
    )


async def _comes_back(outbox: SqlOutbox, event: UUID) -> bool:
    """Whether a worker that goes on working finds the event; the net is not due."""
    for _ in range(4):
        await outbox.tend(sweep=True)
        claimed = await outbox.claim()
        if event in {item.id for item in claimed}:
            return True
        await outbox.finish(claimed)
    return False


async def _late_commit(stage: Stage, outbox: SqlOutbox) -> UUID:
    producer, event = await _begin_and_publish(stage)
    await _pass_by(outbox)
    await producer.commit()
    assert await outbox.claim() == [], "it lies below the watermark: only a sweep finds it"
    return event


async def _claim_aborts_after_sweep(stage: Stage, outbox: SqlOutbox) -> UUID:
    """A late row that a claim holds while the sweeps go by; then the claim aborts."""
    producer, event = await _begin_and_publish(stage)
    await _pass_by(outbox, 1)
    await _mark(outbox)
    await producer.commit()
    claimer = await stage.session("claimer")
    await claimer.begin()
    # A claim that read the watermark before it rose still reaches the row.
    await claimer.run("select from public.outbox where id = $1 for update", event)
    await _pass_by(outbox)
    await claimer.rollback()
    return event


async def _commit_between_look_and_end(stage: Stage, outbox: SqlOutbox) -> UUID:
    """The producer commits after the sweep has looked and before it closes."""
    producer, event = await _begin_and_publish(stage)
    await _pass_by(outbox)
    await _mark(outbox)
    sweeper = await stage.session("sweeper")
    await sweeper.run(SWEEP_DUE)
    await sweeper.begin()
    (found,) = await sweeper.run("select lo, hi from penstock.begin_sweep('outbox')")
    lowest = await sweeper.value(
        "select min(pos) from public.outbox where pos > $1 and pos <= $2", *found
    )
    assert lowest is None
    await producer.commit()
    await sweeper.run("select penstock.end_sweep('outbox', $1)", lowest)
    await sweeper.commit()
    return event


async def _oldest_open_at_mark(stage: Stage, outbox: SqlOutbox) -> UUID:
    """The producer's id is the next after the last that ended: a snapshot calls it the future."""
    await outbox.conn.execute(SWEEP_DUE)
    producer, event = await _begin_and_publish(stage)
    await outbox.tend()  # raises the watermark past it and sets the mark, in one transaction
    await _pass_by(outbox)
    await producer.commit()
    return event


CASES = [
    pytest.param(_oldest_open_at_mark, mutants.MARKS_BY_SNAPSHOT, id="oldest-open-at-mark"),
    pytest.param(_late_commit, mutants.FLOOR_FOLLOWS_WATERMARK, id="late-commit"),
    pytest.param(_late_commit, mutants.NO_SWEEP, id="late-commit-no-sweep"),
    pytest.param(_claim_aborts_after_sweep, mutants.FLOOR_PASSES_LOCKED, id="locked-row"),
    pytest.param(_commit_between_look_and_end, mutants.SETTLES_TOO_LATE, id="commit-mid-sweep"),
]


async def _prepared(outbox: SqlOutbox) -> None:
    await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    await outbox.tend(sweep=True)  # the first one is the net, from zero; it is not due again


@pytest.mark.parametrize(("case", "mutant"), CASES)
async def test_nothing_is_passed_over(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]", case: Case, mutant: str
) -> None:
    outbox = SqlOutbox(conn)
    await _prepared(outbox)
    async with Stage(database_url) as stage:
        event = await case(stage, outbox)
        assert await _comes_back(outbox, event)


@pytest.mark.parametrize(("case", "mutant"), CASES)
async def test_without_the_rule_the_same_interleaving_loses_the_event(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]", case: Case, mutant: str
) -> None:
    outbox = SqlOutbox(conn)
    await _prepared(outbox)
    await conn.execute(mutant)
    async with Stage(database_url) as stage:
        event = await case(stage, outbox)
        assert not await _comes_back(outbox, event)
    assert await outbox.state(event) == "READY", "it is there, and nobody finds it"


async def _claim_in_flight(stage: Stage, outbox: SqlOutbox) -> bool:
    """A claim is open while housekeeping runs, then aborts: is the row still above the mark?"""
    (event,) = await outbox.publish(1)
    claimer = await stage.session("claimer")
    await claimer.begin()
    assert [row["id"] for row in await claimer.run(CLAIM)] == [event]
    await outbox.tend(sweep=True)
    await claimer.rollback()
    return event in {item.id for item in await outbox.claim()}


async def test_the_watermark_does_not_pass_a_claim_that_may_abort(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    await _prepared(outbox)
    async with Stage(database_url) as stage:
        assert await _claim_in_flight(stage, outbox)
        await conn.execute(mutants.WATERMARK_PASSES_CLAIMED)
        assert not await _claim_in_flight(stage, outbox)


async def test_a_claim_that_aborts_after_the_watermark_passed_is_swept_up(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Two claims in one transaction: the second sees the rows of the first as taken."""
    outbox = SqlOutbox(conn)
    await _prepared(outbox)
    (event,) = await outbox.publish(1)
    async with Stage(database_url) as stage:
        claimer = await stage.session("claimer")
        await claimer.begin()
        await claimer.run(CLAIM)
        await claimer.run(
            "select setval('penstock.outbox_wm', last_value) from penstock.outbox_next"
        )
        await claimer.rollback()
    assert await outbox.claim() == []
    assert await _comes_back(outbox, event)


async def test_an_undone_sweep_is_done_again(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    await _prepared(outbox)
    async with Stage(database_url) as stage:
        event = await _late_commit(stage, outbox)
        for _ in range(3):
            await conn.execute(SWEEP_DUE)
            transaction = conn.transaction()
            await transaction.start()
            assert (await outbox.tend())[2] == 1
            await transaction.rollback()
    assert await _comes_back(outbox, event)


async def test_the_net_finds_what_lies_below_the_floor(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await _prepared(outbox)
    (event,) = await outbox.publish(1)
    await conn.execute(
        "select setval('penstock.outbox_next', 1000), setval('penstock.outbox_wm', 1000),"
        " setval('penstock.outbox_floor', 1000)"
    )
    assert not await _comes_back(outbox, event)
    await conn.execute("select setval('penstock.outbox_net', 0)")
    assert (await outbox.tend())[2] == 0, "no sweep is due: the net must not be used up by this"
    assert await _comes_back(outbox, event)


async def test_the_net_finds_leases_and_retries_below_the_time_floors(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await _prepared(outbox)
    await outbox.publish(2)
    items = await outbox.claim()
    await outbox.fail(items[:1], delay_s=0)
    await conn.execute("update penstock.test_clock set shift = interval '1 hour'")
    now = "(extract(epoch from penstock.clock()) * 1000)::bigint"
    await conn.execute(
        f"select setval('penstock.outbox_due', {now}), setval('penstock.outbox_lease', {now})"
    )
    assert (await outbox.tend())[:2] == (0, 0)
    await conn.execute("select setval('penstock.outbox_net', 0)")
    assert (await outbox.tend(sweep=True))[:2] == (1, 1)
