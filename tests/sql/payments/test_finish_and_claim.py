"""Finishing one payment and claiming its participant's next in one commit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg
import pytest
from tests.support.payments import Connection, Flight, SqlPayments

Way: TypeAlias = Callable[..., Awaitable[tuple[list[str], list[Flight]]]]


@pytest.fixture(params=["judged", "paid"])
def ended(request: pytest.FixtureRequest, payments: SqlPayments) -> Way:
    """The two ways to end what was paid, which are one to whoever asks."""
    return payments.paid_and_claim if request.param == "paid" else payments.finish_and_claim


async def _in_flight(payments: SqlPayments, count: int = 3, participants: int = 2) -> None:
    await payments.fill(count * participants, participants)


async def test_the_next_of_the_same_participants_is_claimed_and_of_nobody_else(
    payments: SqlPayments, ended: Way
) -> None:
    await _in_flight(payments, participants=3)
    first = await payments.claim(2)
    await payments.send(first)
    became, then = await ended(first)
    assert became == ["DISPATCHED", "DISPATCHED"]
    assert [(f.participant, f.sequence) for f in then] == [("q00000", 2), ("q00001", 2)]
    assert [f.attempt_no for f in then] == [1, 1]
    assert len({f.token for f in first + then}) == 4
    became, then = await ended(then)
    assert [f.sequence for f in then] == [3, 3]
    became, then = await ended(then)
    assert became == ["DISPATCHED", "DISPATCHED"]
    assert then == []


async def test_undone_it_leaves_the_first_in_flight_and_the_next_waiting(
    payments: SqlPayments, ended: Way
) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    transaction = payments.conn.transaction()
    await transaction.start()
    assert (await ended([first]))[1] != []
    await transaction.rollback()
    assert await payments.state(first.id) == "DISPATCHING"
    assert await payments.claim() == []
    (became,), (second,) = await ended([first])
    assert (became, second.sequence) == ("DISPATCHED", 2)


async def test_a_repeat_answers_the_same_and_claims_nothing_twice(
    payments: SqlPayments, ended: Way
) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    _, (second,) = await ended([first])
    assert await ended([first]) == (["DISPATCHED"], [])
    assert await payments.state(second.id) == "DISPATCHING"


async def test_a_token_that_was_lost_takes_nothing_over(payments: SqlPayments) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    await payments.release([first])
    (again,) = await payments.claim()
    became, then = await payments.finish_and_claim([first], "RETRYABLE")
    assert became in (["REFUSED"], ["RETRYABLE"])
    assert then == []
    assert (await payments.finish_and_claim([again]))[0] == ["DISPATCHED"]


async def test_a_success_whose_token_was_lost_is_recorded_and_ends_nothing(
    payments: SqlPayments, ended: Way
) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    await payments.release([first])
    (again,) = await payments.claim()
    await payments.send([again])
    assert await ended([first]) == (["LATE"], [])
    assert await payments.state(again.id) == "DISPATCHING"


@pytest.mark.parametrize("state", ["RETRYABLE", "HELD"])
async def test_what_has_not_ended_keeps_the_next_waiting(payments: SqlPayments, state: str) -> None:
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    assert await payments.finish_and_claim(first, state, delay_s=60) == ([state], [])


async def test_a_retry_that_is_due_at_once_is_the_next(payments: SqlPayments) -> None:
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    _, (again,) = await payments.finish_and_claim(first, "RETRYABLE", delay_s=0)
    assert (again.id, again.attempt_no) == (first[0].id, 3)


@pytest.mark.parametrize(
    "stop",
    [
        "select penstock.pause_target('payments', 'test')",
        "select penstock.pause_target('rail/ach', 'test')",
        "select penstock.pause_target('participant/q00000', 'test')",
        """select put_payment_rail('ach', '{"max_concurrency": 5}', 'test')""",
    ],
)
async def test_pauses_and_bounded_rails_are_left_to_the_claim_that_goes_round(
    payments: SqlPayments, ended: Way, stop: str
) -> None:
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    await payments.conn.execute(stop)
    assert await ended(first) == (["DISPATCHED"], [])


async def test_rails_that_are_not_served_or_full_are_left_alone(
    payments: SqlPayments, ended: Way
) -> None:
    await _in_flight(payments, participants=2)
    one, two = await payments.claim()
    assert (await ended([one], rails=["sepa"]))[1] == []
    assert (await ended([two], skip=["ach"]))[1] == []


async def test_a_failure_that_blocks_takes_nothing_after_it(payments: SqlPayments) -> None:
    await payments.rail("ach", on_failed="block")
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    assert await payments.finish_and_claim(first, "FAILED") == (["FAILED"], [])


async def test_nobody_can_claim_between_the_end_and_the_next(
    payments: SqlPayments, ended: Way, database_url: str
) -> None:
    """Another worker that claims at the same time finds nothing, before and after."""
    await _in_flight(payments, count=40, participants=1)
    flights = await payments.claim()
    conn: Connection = await asyncpg.connect(database_url)
    for _ in range(39):
        (_, flights), stolen = await asyncio.gather(ended(flights), SqlPayments(conn).claim())
        assert stolen == []
        assert len(flights) == 1
    await conn.close()
    await payments.finish(flights)


HISTORY = """select participant_id, sequence_id, attempt_no, state::text, rail_reference,
    completed_at is not null as completed, latency_ms, error_code, lease_token, lease_owner
    from payment_outbox_attempts order by sequence_id, attempt_no"""


async def test_both_ways_write_the_same_history(payments: SqlPayments) -> None:
    """Only who claimed and when differs."""
    told: list[list[tuple[object, ...]]] = []
    for quick in (True, False):
        transaction = payments.conn.transaction()
        await transaction.start()
        await payments.fill(3, 1)
        (first,) = await payments.claim()
        await payments.finish([first], "RETRYABLE")
        await payments.conn.execute("update payment_outbox_pending set claim_code = 'WHY'")
        (again,) = await payments.claim()
        await payments.send([again])
        if quick:
            _, (second,) = await payments.paid_and_claim([again])
        else:
            _, (second,) = await payments.finish_and_claim([again], latency_ms=7)
        rows = await payments.conn.fetch(HISTORY)
        assert [row["lease_token"] for row in rows[-3:]] == [again.token, again.token, second.token]
        assert all(row["lease_owner"] is not None for row in rows[-1:])
        registry = await payments.conn.fetch(
            """select sequence_id, terminal_state, terminal_at is null, first_sent_at is null
               from payment_outbox_registry order by sequence_id"""
        )
        flight = await payments.conn.fetchrow(
            """select outbox_id = $1, attempt_no, phase, uncounted, late_at, held_at, error_code,
                      lease_expires_at - claimed_at as lease from payment_outbox_inflight""",
            second.id,
        )
        assert flight is not None
        told.append([*(tuple(row)[:-2] for row in rows), *map(tuple, registry), tuple(flight)])
        assert await payments.violations() == []
        await transaction.rollback()
    assert told[0] == told[1]


async def test_a_success_that_came_late_is_left_to_be_judged(payments: SqlPayments) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    await payments.release([first])
    (again,) = await payments.claim()
    await payments.send([again])
    late = "select record_late_success($1, $2, 'paid-1', null, null)"
    assert await payments.conn.fetchval(late, first.id, first.token) == "FLAGGED"
    became, then = await payments.paid_and_claim([again])
    assert (became, then) == (["DISPATCHED"], [])
    codes = await payments.conn.fetch(
        "select rail_reference from payment_outbox_attempts where attempt_no = 4"
    )
    assert [row["rail_reference"] for row in codes] == ["paid-1"]


@pytest.mark.parametrize("stop", ["later", "locked", "blocked"])
async def test_a_head_that_may_not_go_lets_nothing_pass_it(
    payments: SqlPayments, ended: Way, database_url: str, stop: str
) -> None:
    """Neither the head, nor the one behind it."""
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    other: Connection = await asyncpg.connect(database_url)
    transaction = other.transaction()
    if stop == "later":
        await payments.conn.execute(
            "update payment_outbox_pending set next_attempt_at = 'infinity' where sequence_id = 2"
        )
    elif stop == "blocked":
        await payments.conn.execute(
            """insert into penstock_payments.dead_letters
               select gen_random_uuid(), participant_id, 9, 'ach', null, null, 1, true, now(),
                      now(), '{}', '{}' from payment_outbox_pending where sequence_id = 2"""
        )
    else:
        await transaction.start()
        await other.execute("select from payment_outbox_pending where sequence_id = 2 for update")
    assert await ended(first) == (["DISPATCHED"], [])
    await other.close()
