"""finish, sent, release, late results: one outcome per dispatch, and a timeout is not a failure."""

from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest
from tests.support.payments import KEYED, SqlPayments


async def test_success_ends_a_payment(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    flights = await payments.claim()
    assert await payments.send(flights) == {payment}
    assert await payments.finish(flights, reference="R1") == ["DISPATCHED"]
    assert await payments.attempts(payment) == [
        (1, "DISPATCHING", None),
        (2, "DISPATCHED", None),
    ]
    row = await payments.conn.fetchrow(
        "select * from payment_outbox_attempts where state = 'DISPATCHED'"
    )
    assert row is not None
    assert row["rail_reference"] == "R1"
    assert row["latency_ms"] >= 0
    assert row["completed_at"] >= row["claimed_at"]
    assert await payments.state(payment) == "DISPATCHED"


async def test_a_retry_is_recorded_and_queued_again_under_the_same_ids(
    payments: SqlPayments,
) -> None:
    payment = await payments.enqueue()
    await payments.finish(await payments.claim(), "RETRYABLE", delay_s=30)
    row = await payments.conn.fetchrow("select * from payment_outbox_pending")
    assert row is not None
    assert (row["outbox_id"], row["sequence_id"], row["attempt_count"]) == (payment, 1, 2)
    assert await payments.claim() == []
    await payments.advance(timedelta(seconds=31))
    (flight,) = await payments.claim()
    assert flight.attempt_no == 3


async def test_requeueing_keeps_the_greater_count(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    flights = await payments.claim()
    # A relayer of the seed's kind put the row back by hand with a higher count.
    conn = payments.conn
    await conn.execute("alter table payment_outbox_pending disable trigger all")
    await conn.execute(
        """insert into payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                payload, attempt_count)
           select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,
                  rail_type, payload, 6 from payment_outbox_inflight"""
    )
    assert await payments.finish(flights, "RETRYABLE") == ["RETRYABLE"]
    count = await conn.fetchval("select attempt_count from payment_outbox_pending")
    assert count == 6
    await conn.execute("update payment_outbox_pending set attempt_count = 2")
    await conn.execute("alter table payment_outbox_pending enable trigger all")
    assert await payments.state(payment) == "RETRYABLE"


async def test_a_terminal_failure_is_a_dead_letter(payments: SqlPayments) -> None:
    payment = await payments.fail()
    assert await payments.attempts(payment) == [
        (1, "DISPATCHING", None),
        (2, "FAILED", "REJECTED"),
    ]
    row = await payments.conn.fetchrow("select * from penstock.dead_letters")
    assert row is not None
    assert (row["queue"], row["id"], row["state"], row["error_code"]) == (
        "payments",
        payment,
        "DEAD",
        "REJECTED",
    )


async def test_the_limit_counts_dispatches_not_rows(payments: SqlPayments) -> None:
    await payments.config(max_attempts=3)
    payment = await payments.enqueue()
    ends = [await payments.finish(await payments.claim(), "RETRYABLE") for _ in range(3)]
    assert ends == [["RETRYABLE"], ["RETRYABLE"], ["FAILED"]]
    assert (await payments.attempts(payment))[-1] == (6, "FAILED", "MAX_ATTEMPTS")


async def test_a_release_does_not_count(payments: SqlPayments) -> None:
    await payments.config(max_attempts=2)
    payment = await payments.enqueue()
    for _ in range(4):
        assert await payments.release(await payments.claim()) == 1
    (flight,) = await payments.claim()
    assert (flight.attempt_no, flight.attempt) == (9, 1)
    assert await payments.finish([flight], "RETRYABLE") == ["RETRYABLE"]
    assert (await payments.attempts(payment))[1] == (2, "RETRYABLE", "RELEASED")


async def test_what_was_sent_cannot_be_released(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    flights = await payments.claim()
    await payments.send(flights)
    assert await payments.release(flights) == 0
    assert await payments.state(payment) == "DISPATCHING"


async def test_an_unknown_outcome_is_retried_where_the_rail_knows_our_key(
    payments: SqlPayments,
) -> None:
    await payments.rail("ach", **KEYED)
    await payments.enqueue()
    flights = await payments.claim()
    await payments.send(flights)
    assert await payments.finish(flights, "UNKNOWN") == ["RETRYABLE"]


@pytest.mark.parametrize("known_rail", [False, True])
async def test_an_unknown_outcome_is_held_where_it_does_not(
    payments: SqlPayments, *, known_rail: bool
) -> None:
    if known_rail:
        await payments.rail("ach", idempotent=False)
    flight = await payments.hold()
    assert await payments.state(flight.id) == "HELD"
    await payments.advance(timedelta(days=30))
    assert await payments.reap() == []
    assert await payments.claim() == []
    assert await payments.finish([flight], "UNKNOWN") == ["HELD"], "a repeat says the same"


async def test_an_unknown_outcome_of_what_was_not_sent_is_a_retry(payments: SqlPayments) -> None:
    await payments.enqueue()
    assert await payments.finish(await payments.claim(), "UNKNOWN") == ["RETRYABLE"]


async def test_an_unknown_outcome_at_the_limit_is_held_not_failed(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    await payments.config(max_attempts=1)
    await payments.enqueue()
    flights = await payments.claim()
    await payments.send(flights)
    assert await payments.finish(flights, "UNKNOWN") == ["HELD"]


async def test_beyond_the_window_of_the_key_nothing_is_sent_again(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    payment = await payments.enqueue()
    flights = await payments.claim()
    await payments.send(flights)
    await payments.finish(flights, "UNKNOWN", delay_s=60)
    await payments.advance(timedelta(hours=25))
    late = await payments.claim()
    assert [f.id for f in late] == [payment]
    assert await payments.send(late) == set()
    assert await payments.state(payment) == "HELD"
    code = await payments.conn.fetchval("select error_code from payment_outbox_inflight")
    assert code == "KEY_WINDOW_OVER"


async def test_a_key_shown_by_a_clock_that_was_set_back_is_not_trusted(
    payments: SqlPayments,
) -> None:
    """Two days ahead at the first send: by the right clock the window would never seem over."""
    await payments.rail("ach", **KEYED)
    await payments.advance(timedelta(days=2))
    failed = await payments.fail("b")
    payment = await payments.enqueue("a")
    flights = await payments.claim()
    await payments.send(flights)
    await payments.finish(flights, "UNKNOWN", delay_s=0)
    flights = await payments.claim()
    await payments.advance(timedelta(days=-2))
    assert await payments.send(flights) == set()
    assert await payments.state(payment) == "HELD"
    with pytest.raises(asyncpg.PostgresError) as refused:
        await payments.conn.fetch("select replay_payment($1, 'ann', 'r')", failed)
    assert refused.value.sqlstate == "PN506"


async def test_a_clock_that_is_set_back_a_little_stops_nothing(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    payment = await payments.enqueue()
    flights = await payments.claim()
    await payments.send(flights)
    await payments.finish(flights, "UNKNOWN", delay_s=0)
    flights = await payments.claim()
    await payments.advance(timedelta(seconds=-30))
    assert await payments.send(flights) == {payment}


async def test_a_rail_that_loses_its_keys_holds_what_it_was_shown(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    shown = [await payments.enqueue(name) for name in "abc"]
    flights = await payments.claim()
    await payments.send(flights)
    await payments.finish(flights, "UNKNOWN", delay_s=0)
    waiting, claimed, sent = await payments.claim()
    await payments.finish([waiting], "RETRYABLE")
    assert await payments.send([sent]) == {sent.id}
    fresh = await payments.enqueue("d")
    await payments.rail("ach", idempotent=False, idempotency_window=None)
    assert await payments.send([claimed]) == set()
    assert await payments.finish([sent], "UNKNOWN") == ["HELD"]
    assert [await payments.state(payment) for payment in shown] == ["HELD"] * 3
    assert [f.id for f in await payments.claim()] == [fresh]


async def test_sending_makes_the_lease_cover_the_rails_time_limit(payments: SqlPayments) -> None:
    await payments.rail("ach", **(KEYED | {"timeout_ms": 120_000}))
    await payments.enqueue()
    flights = await payments.claim()
    rows = await payments.conn.fetch(
        "select lease_s from mark_payment_sent($1, $2)", [flights[0].id], [flights[0].token]
    )
    assert rows[0]["lease_s"] > 120


async def test_without_the_lease_nothing_is_sent(payments: SqlPayments) -> None:
    await payments.enqueue()
    flights = await payments.claim()
    await payments.advance(timedelta(seconds=61))
    assert await payments.reap() == ["ZOMBIE_REQUEUE"]
    assert await payments.send(flights) == set()


async def test_leases_are_extended_by_their_holder_only(payments: SqlPayments) -> None:
    await payments.fill(2, 2)
    mine, other = await payments.claim()
    lost = await payments.conn.fetch(
        "select outbox_id from extend_payment_leases($1, $2)",
        [mine.id, other.id],
        [mine.token, uuid4()],
    )
    assert [row[0] for row in lost] == [other.id]
    await payments.advance(timedelta(seconds=59))
    await payments.conn.fetch("select extend_payment_leases($1, $2)", [mine.id], [mine.token])
    await payments.advance(timedelta(seconds=2))
    assert await payments.reap() == ["ZOMBIE_REQUEUE"]
    assert await payments.state(mine.id) == "DISPATCHING"


async def test_a_repeated_finish_answers_what_it_recorded(payments: SqlPayments) -> None:
    await payments.fill(3, 3)
    flights = await payments.claim()
    for flight, state in zip(flights, ("DISPATCHED", "RETRYABLE", "FAILED"), strict=True):
        first = await payments.finish([flight], state, delay_s=60)
        assert await payments.finish([flight], state, delay_s=60) == first == [state]
    assert await payments.conn.fetchval("select count(*) from penstock.late_results") == 0


async def test_a_stale_failure_changes_nothing_and_is_kept(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    old = await payments.claim()
    await payments.advance(timedelta(seconds=61))
    await payments.reap()
    new = await payments.claim()
    assert await payments.finish(old, "FAILED") == ["REFUSED"]
    assert await payments.finish(new) == ["DISPATCHED"]
    kept = await payments.conn.fetch("select item_id, verdict from penstock.late_results")
    assert [tuple(row) for row in kept] == [(payment, "FAILED")]


async def test_a_late_success_takes_the_requeued_row(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    old = await payments.claim()
    await payments.advance(timedelta(seconds=61))
    await payments.reap()
    assert await payments.finish(old, reference="R1") == ["LATE"]
    assert (await payments.attempts(payment))[1:] == [
        (2, "ZOMBIE_REQUEUE", "ZOMBIE"),
        (3, "DISPATCHING", "LATE_RESULT"),
        (4, "DISPATCHED", "LATE_RESULT"),
    ]
    assert await payments.claim() == []
    assert await payments.finish(old, reference="R1") in (["LATE"], ["DISPATCHED"])
    assert len(await payments.attempts(payment)) == 4


async def test_a_late_success_before_the_next_one_sends_stops_it(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    old = await payments.claim()
    await payments.advance(timedelta(seconds=61))
    await payments.reap()
    new = await payments.claim()
    assert await payments.finish(old, reference="R1") == ["LATE"]
    assert await payments.send(new) == set(), "money has moved"
    assert await payments.state(payment) == "DISPATCHED"


@pytest.mark.parametrize("state", ["DISPATCHED", "RETRYABLE", "FAILED", "UNKNOWN"])
async def test_a_late_success_while_the_next_one_sends_decides(
    payments: SqlPayments, state: str
) -> None:
    await payments.rail("ach", **KEYED)
    payment = await payments.enqueue()
    old = await payments.claim()
    await payments.send(old)
    await payments.advance(timedelta(seconds=61))
    await payments.reap()
    new = await payments.claim()
    await payments.send(new)
    assert await payments.finish(old, reference="R1") == ["LATE"]
    reference = "R1" if state == "DISPATCHED" else None
    assert await payments.finish(new, state, reference=reference) == ["DISPATCHED"]
    row = await payments.conn.fetchrow(
        "select rail_reference from payment_outbox_attempts where state = 'DISPATCHED'"
    )
    assert row is not None
    assert row["rail_reference"] == "R1"
    assert await payments.state(payment) == "DISPATCHED"


async def test_a_late_success_corrects_a_failure(payments: SqlPayments) -> None:
    await payments.config(max_attempts=1)
    payment = await payments.enqueue()
    old = await payments.claim()
    await payments.advance(timedelta(seconds=61))
    assert await payments.reap() == ["FAILED"]
    assert await payments.finish(old) == ["LATE"]
    assert await payments.state(payment) == "DISPATCHED"
    assert await payments.conn.fetch("select * from penstock.dead_letters") == []


async def test_a_success_needs_a_token_that_once_held_the_payment(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    await payments.claim()
    with pytest.raises(asyncpg.PostgresError) as refused:
        await payments.conn.fetch("select record_late_success($1, $2)", payment, uuid4())
    assert refused.value.sqlstate == "PN201"


async def test_nonsense_is_refused(payments: SqlPayments) -> None:
    await payments.enqueue()
    (flight,) = await payments.claim()
    for tokens, states, code in (
        ([None], ["DISPATCHED"], "PN201"),
        ([], ["DISPATCHED"], "PN201"),
        ([flight.token], ["ZOMBIE_REQUEUE"], "PN005"),
    ):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await payments.conn.fetch(
                "select * from finish_payment_attempts($1, $2, $3)", [flight.id], tokens, states
            )
        assert refused.value.sqlstate == code
