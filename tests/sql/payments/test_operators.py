"""hold, resolve, replay, discard, cancel, approve: each with one audit row, none without."""

import json
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.payments import KEYED, Session, SqlPayments

REPLAY = "select replay_payment($1, 'ann', 'fixed')"
RESOLVE = "select resolve_payment($1, $2, 'asked the rail', 'ann', $3)"
CANCEL = "select cancel_payment($1, 'withdrawn')"
HOLD = "select hold_payment($1, 'suspicious', 'ann')"
DISCARD = "select * from payment_discard($1, 'hopeless', 'ann')"


async def _refusal(conn: Session, query: str, *args: object) -> str | None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch(query, *args)
    return refused.value.sqlstate


async def _audit(conn: Session, payment: UUID) -> list[str]:
    rows = await conn.fetch(
        "select operation from audit.audit_logs where row_data ->> 'id' = $1 order by at",
        str(payment),
    )
    return [row["operation"] for row in rows]


async def test_a_replay_dispatches_again_under_the_old_ids(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    await payments.config(max_attempts=2)
    payment = await payments.fail()
    await payments.conn.fetch(REPLAY, payment)
    (flight,) = await payments.claim()
    assert (flight.id, flight.sequence, flight.attempt_no, flight.attempt) == (payment, 1, 3, 1)
    assert (await payments.attempts(payment))[-1] == (3, "DISPATCHING", "OPERATOR_REPLAY")
    assert await payments.finish([flight], "RETRYABLE") == ["RETRYABLE"], "a new cycle"
    assert await _audit(payments.conn, payment) == ["replay"]
    assert await payments.conn.fetch("select * from penstock.dead_letters") == []


async def test_beyond_the_window_a_replay_waits_for_a_reconciliation(
    payments: SqlPayments,
) -> None:
    await payments.rail("ach", **KEYED)
    payment = await payments.fail()
    await payments.advance(timedelta(hours=25))
    assert await _refusal(payments.conn, REPLAY, payment) == "PN506"
    many = "select * from penstock.replay('payments', array[$1::uuid], 'r')"
    assert await _refusal(payments.conn, many, payment) == "PN506"
    assert await payments.state(payment) == "FAILED"
    await payments.conn.fetch(RESOLVE, payment, "not_paid", None)
    await payments.conn.fetch(REPLAY, payment)
    flights = await payments.claim()
    assert await payments.send(flights) == {payment}, "the window runs anew"
    assert await _audit(payments.conn, payment) == ["resolve", "replay"]


async def test_on_a_rail_without_keys_a_replay_always_waits(payments: SqlPayments) -> None:
    sent = await payments.fail("a")
    assert await _refusal(payments.conn, REPLAY, sent) == "PN506"
    unsent = await payments.fail("b", sent=False)
    await payments.conn.fetch(REPLAY, unsent)
    assert await payments.state(unsent) == "PENDING"


async def test_a_failed_payment_can_turn_out_to_be_paid(payments: SqlPayments) -> None:
    payment = await payments.fail()
    await payments.conn.fetch(RESOLVE, payment, "dispatched", "R9")
    assert await payments.state(payment) == "DISPATCHED"
    assert (await payments.attempts(payment))[2:] == [
        (3, "DISPATCHING", "RESOLVED"),
        (4, "DISPATCHED", "RESOLVED"),
    ]
    assert await _refusal(payments.conn, REPLAY, payment) == "PN505"


@pytest.mark.parametrize(
    ("resolution", "state", "outcome"),
    [
        ("dispatched", "DISPATCHED", "DISPATCHED"),
        ("failed", "FAILED", "FAILED"),
        ("not_paid", "PENDING", "RETRYABLE"),
    ],
)
async def test_a_held_payment_is_resolved(
    payments: SqlPayments, resolution: str, state: str, outcome: str
) -> None:
    flight = await payments.hold()
    assert await _refusal(payments.conn, REPLAY, flight.id) == "PN505"
    await payments.conn.fetch(RESOLVE, flight.id, resolution, "R1")
    assert await payments.state(flight.id) == state
    assert (await payments.attempts(flight.id))[1:] == [(2, outcome, "RESOLVED")]
    if resolution == "not_paid":
        again = await payments.claim()
        assert await payments.send(again) == {flight.id}
        assert again[0].attempt == 1
    assert await _refusal(payments.conn, RESOLVE, flight.id, resolution, None) == "PN505"


async def test_an_operator_can_hold_what_waits_and_what_is_in_flight(
    payments: SqlPayments,
) -> None:
    conn = payments.conn
    waiting = await payments.enqueue("a")
    await conn.fetch(HOLD, waiting)
    flying = await payments.enqueue("b")
    flights = await payments.claim()
    assert [f.id for f in flights] == [flying]
    await conn.fetch(HOLD, flying)
    assert await payments.send(flights) == set()
    states = await conn.fetch("select id, state from penstock.dead_letters")
    assert {tuple(row) for row in states} == {(waiting, "HELD"), (flying, "HELD")}
    assert await conn.fetchval("select held from penstock.queue_stats where queue='payments'") == 2
    assert await _refusal(conn, HOLD, waiting) == "PN505"
    for payment in (waiting, flying):
        await conn.fetch(RESOLVE, payment, "not_paid", None)
    assert {f.id for f in await payments.claim()} == {waiting, flying}


@pytest.mark.parametrize(
    ("resolution", "state"), [("dispatched", "DISPATCHED"), ("failed", "FAILED")]
)
async def test_what_is_held_between_two_dispatches_can_be_ended(
    payments: SqlPayments, resolution: str, state: str
) -> None:
    """The bank tells that it paid, while the payment waits for its next attempt."""
    await payments.rail("ach", **KEYED)
    payment = await payments.enqueue("p")
    flights = await payments.claim()
    await payments.send(flights)
    await payments.finish(flights, "UNKNOWN", delay_s=600)
    await payments.conn.fetch(HOLD, payment)
    await payments.conn.fetch(RESOLVE, payment, resolution, "R1")
    assert await payments.state(payment) == state
    assert (await payments.attempts(payment))[2:] == [
        (3, "DISPATCHING", "RESOLVED"),
        (4, state, "RESOLVED"),
    ]
    dead = await payments.conn.fetch("select id from penstock.dead_letters")
    assert [row["id"] for row in dead] == ([payment] if state == "FAILED" else [])
    assert await payments.claim() == []
    assert await _audit(payments.conn, payment) == ["hold", "resolve"]
    if state == "FAILED":
        await payments.advance(timedelta(hours=25))
        assert await _refusal(payments.conn, REPLAY, payment) == "PN506", "the key was shown"


async def test_what_is_held_before_any_dispatch_has_no_end_to_tell_of(
    payments: SqlPayments,
) -> None:
    payment = await payments.enqueue()
    await payments.conn.fetch(HOLD, payment)
    for resolution in ("dispatched", "failed"):
        assert await _refusal(payments.conn, RESOLVE, payment, resolution, None) == "PN505"
    assert await payments.state(payment) == "HELD"
    assert await payments.conn.fetchval(CANCEL, payment)


async def test_a_success_reported_after_the_hold_resolves_it(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    flights = await payments.claim()
    await payments.send(flights)
    await payments.conn.fetch(HOLD, payment)
    assert await payments.finish(flights, reference="R1") == ["LATE"]
    assert await payments.state(payment) == "DISPATCHED"


async def test_workers_resolve_by_status_query_only_where_the_rail_can_be_asked(
    payments: SqlPayments,
) -> None:
    by_status = "select resolve_payment_by_status($1, 'dispatched', 'R1')"
    flight = await payments.hold()
    assert not await payments.conn.fetchval(by_status, flight.id)
    await payments.rail("ach", status_query=True)
    held = await payments.conn.fetch("select outbox_id from payment_held()")
    assert [row[0] for row in held] == [flight.id]
    assert await payments.conn.fetchval(by_status, flight.id)
    assert await payments.state(flight.id) == "DISPATCHED"
    assert await _audit(payments.conn, flight.id) == ["resolve"]
    other = await payments.enqueue("z")
    await payments.claim()
    await payments.conn.fetch(HOLD, other)
    assert not await payments.conn.fetchval(by_status, other), "the operator's own hold"


async def test_discarding_gives_up_for_good(payments: SqlPayments) -> None:
    failed = await payments.fail("a")
    held = await payments.hold("b")
    open_one = await payments.enqueue("c")
    rows = await payments.conn.fetch(DISCARD, [failed, held.id, open_one])
    assert {row["id"] for row in rows} == {failed, held.id}
    assert [await payments.state(p) for p in (failed, held.id)] == ["FAILED", "FAILED"]
    assert await payments.conn.fetch("select * from penstock.dead_letters") == []
    assert await payments.conn.fetch(DISCARD, [failed, held.id]) == []
    assert await _refusal(payments.conn, REPLAY, failed) == "PN505"
    assert await payments.finish([held]) == ["LATE"], "money that moved is never forgotten"
    assert await payments.state(held.id) == "DISPATCHED"


async def test_a_cancel_withdraws_what_no_rail_has_seen(payments: SqlPayments) -> None:
    conn = payments.conn
    first = await payments.enqueue("p")
    following = await payments.enqueue("p")
    assert await conn.fetchval(CANCEL, first)
    assert not await conn.fetchval(CANCEL, first)
    assert await payments.state(first) == "CANCELLED"
    (flight,) = await payments.claim()
    assert (flight.id, flight.sequence) == (following, 2), "the number stays used"
    assert not await conn.fetchval(CANCEL, following), "in flight"
    await payments.send([flight])
    await payments.finish([flight], "RETRYABLE")
    assert not await conn.fetchval(CANCEL, following), "the rail has seen it"
    assert await _audit(conn, first) == ["cancel"]
    assert await payments.enqueue("p", instruction="i1") == first, "and so does the key"


async def test_every_action_needs_a_reason(payments: SqlPayments) -> None:
    payment = await payments.fail(sent=False)
    waiting = await payments.enqueue("z")
    for query, target in (
        ("select replay_payment($1, 'ann', ' ')", payment),
        ("select resolve_payment($1, 'not_paid', '')", payment),
        ("select payment_discard(array[$1::uuid], null)", payment),
        ("select hold_payment($1, '')", waiting),
        ("select cancel_payment($1, '')", waiting),
        ("select approve_payment($1, '')", waiting),
    ):
        assert await _refusal(payments.conn, query, target) == "PN205", query
    assert await payments.state(payment) == "FAILED"
    assert await payments.state(waiting) == "PENDING"
    assert await _audit(payments.conn, payment) == []


async def test_four_eyes_are_two_logins(payments: SqlPayments, database_url: str) -> None:
    conn = payments.conn
    payment = await payments.fail(sent=False)
    await payments.policy(second_approver=True)
    assert await _refusal(conn, REPLAY, payment) == "PN507"
    await conn.fetch("select approve_payment($1, 'me again')", payment)
    assert await _refusal(conn, REPLAY, payment) == "PN507", "the same login"
    await conn.execute(
        """insert into penstock_payments.approvals (outbox_id, approved_by, approved_at)
           values ($1, 'bob', penstock.clock() - interval '25 hours')""",
        payment,
    )
    assert await _refusal(conn, REPLAY, payment) == "PN507", "too old"
    await conn.execute(
        "insert into penstock_payments.approvals (outbox_id, approved_by) values ($1, 'bob')",
        payment,
    )
    await conn.fetch(REPLAY, payment)
    row = await conn.fetchval(
        "select row_data ->> 'approved_by' from audit.audit_logs where operation = 'replay'"
    )
    assert row == "bob"
    await payments.finish(await payments.claim(), "FAILED")
    assert await _refusal(conn, REPLAY, payment) == "PN507", "an approval is good once"


async def test_giving_up_what_may_have_been_paid_takes_four_eyes_too(
    payments: SqlPayments,
) -> None:
    conn = payments.conn
    held, failed = await payments.hold("a"), await payments.fail("b", sent=False)
    await payments.policy(second_approver=True)
    assert await _refusal(conn, DISCARD, [failed, held.id]) == "PN507"
    assert await payments.state(held.id) == "HELD"
    assert [row["id"] for row in await conn.fetch(DISCARD, [failed])] == [failed]
    await conn.execute(
        "insert into penstock_payments.approvals (outbox_id, approved_by) values ($1, 'bob')",
        held.id,
    )
    assert [row["id"] for row in await conn.fetch(DISCARD, [held.id])] == [held.id]
    by = "select row_data ->> 'approved_by' from audit.audit_logs where row_data ->> 'id' = $1"
    assert await conn.fetchval(by, str(held.id)) == "bob"


@pytest.mark.parametrize("second", [REPLAY, "select * from payment_discard(array[$1::uuid], 'r')"])
async def test_of_two_operators_at_once_one_acts(
    database_url: str, payments: SqlPayments, second: str
) -> None:
    payment = await payments.fail(sent=False)
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        await ann.run(REPLAY, payment)
        waiting = bob.start(second, payment)
        if second == REPLAY:
            await stage.until_blocked(bob, waiting)
            await ann.commit()
            with pytest.raises(asyncpg.PostgresError) as refused:
                await waiting.done()
            assert refused.value.sqlstate == "PN505"
        else:
            assert await waiting.done() == []
            await ann.commit()
    assert await _audit(payments.conn, payment) == ["replay"]


async def test_the_story_tells_everything_but_the_payload(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    payment = await payments.fail()
    await payments.conn.fetch(REPLAY, payment)
    story = json.loads(await payments.conn.fetchval("select penstock.story($1)", payment))
    assert [a["state"] for a in story["attempts"]] == ["DISPATCHING", "FAILED"]
    assert [a["operation"] for a in story["audit"]] == ["replay"]
    assert (story["queue"], story["state"], story["payload"]) == ("payments", "PENDING", None)
    read = "select penstock.story($1, true, 'complaint 12', 'ann')"
    story = json.loads(await payments.conn.fetchval(read, payment))
    assert story["payload"]["currency"] == "EUR"
    assert await payments.conn.fetchval("select payment_story($1)", uuid4()) is None
