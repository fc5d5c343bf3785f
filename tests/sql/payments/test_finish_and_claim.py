"""Finishing one payment and claiming its participant's next in one commit."""

import asyncio

import asyncpg
import pytest
from tests.support.payments import Connection, SqlPayments


async def _in_flight(payments: SqlPayments, count: int = 3, participants: int = 2) -> None:
    await payments.fill(count * participants, participants)


async def test_the_next_of_the_same_participants_is_claimed_and_of_nobody_else(
    payments: SqlPayments,
) -> None:
    await _in_flight(payments, participants=3)
    first = await payments.claim(2)
    await payments.send(first)
    became, then = await payments.finish_and_claim(first)
    assert became == ["DISPATCHED", "DISPATCHED"]
    assert [(f.participant, f.sequence) for f in then] == [("q00000", 2), ("q00001", 2)]
    assert [f.attempt_no for f in then] == [1, 1]
    assert len({f.token for f in first + then}) == 4
    became, then = await payments.finish_and_claim(then)
    assert [f.sequence for f in then] == [3, 3]
    became, then = await payments.finish_and_claim(then)
    assert became == ["DISPATCHED", "DISPATCHED"]
    assert then == []


async def test_undone_it_leaves_the_first_in_flight_and_the_next_waiting(
    payments: SqlPayments,
) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    transaction = payments.conn.transaction()
    await transaction.start()
    assert (await payments.finish_and_claim([first]))[1] != []
    await transaction.rollback()
    assert await payments.state(first.id) == "DISPATCHING"
    assert await payments.claim() == []
    (became,), (second,) = await payments.finish_and_claim([first])
    assert (became, second.sequence) == ("DISPATCHED", 2)


async def test_a_repeat_answers_the_same_and_claims_nothing_twice(payments: SqlPayments) -> None:
    await _in_flight(payments, participants=1)
    (first,) = await payments.claim()
    _, (second,) = await payments.finish_and_claim([first])
    assert await payments.finish_and_claim([first]) == (["DISPATCHED"], [])
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
    payments: SqlPayments, stop: str
) -> None:
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    await payments.conn.execute(stop)
    assert await payments.finish_and_claim(first) == (["DISPATCHED"], [])


async def test_rails_that_are_not_served_or_full_are_left_alone(payments: SqlPayments) -> None:
    await _in_flight(payments, participants=2)
    one, two = await payments.claim()
    assert (await payments.finish_and_claim([one], rails=["sepa"]))[1] == []
    assert (await payments.finish_and_claim([two], skip=["ach"]))[1] == []


async def test_a_failure_that_blocks_takes_nothing_after_it(payments: SqlPayments) -> None:
    await payments.rail("ach", on_failed="block")
    await _in_flight(payments, participants=1)
    first = await payments.claim()
    assert await payments.finish_and_claim(first, "FAILED") == (["FAILED"], [])


async def test_nobody_can_claim_between_the_end_and_the_next(
    payments: SqlPayments, database_url: str
) -> None:
    """Another worker that claims at the same time finds nothing, before and after."""
    await _in_flight(payments, count=40, participants=1)
    flights = await payments.claim()
    conn: Connection = await asyncpg.connect(database_url)
    for _ in range(39):
        (_, flights), stolen = await asyncio.gather(
            payments.finish_and_claim(flights), SqlPayments(conn).claim()
        )
        assert stolen == []
        assert len(flights) == 1
    await conn.close()
    await payments.finish(flights)
