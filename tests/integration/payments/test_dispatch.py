"""Payments end to end: enqueue in a transaction, dispatch over a simulated rail, look at both."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from time import monotonic
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from tests.support.rails import DAY, IBAN, Shop, application, instruction, opened
from tests.support.waiting import until, until_true

from penstock.kernel.errors import BadHandler, NotInTransaction, WrongUsage
from penstock.kernel.events import HandlerRaised, Observation, WokeUp
from penstock.kernel.verdict import Reject, Retry, Unknown
from penstock.payments import store
from penstock.payments.errors import PaymentKeyReused, PaymentRefused, ReconcileFirst
from penstock.payments.instruction import Instruction
from penstock.payments.rails import NotSent, RailOutcome, Sent
from penstock.payments.simulator import AskableRail, Faults


@pytest.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    async with opened(database_url) as found:
        yield found


class Scripted:
    """A rail that answers, raises or waits as it was told, in order; then it pays."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, UUID]] = []

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        self.calls.append((instruction.instruction_id, key))
        answer = self.answers.pop(0) if self.answers else Sent("r1", "PAID")
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return Sent("r1", "PAID")
        return cast(RailOutcome, answer)


async def _soon(shop: Shop) -> None:
    """Let retries come at once."""
    await shop.conn.execute(
        "update penstock.queue_config set backoff_base_s = 0.01, backoff_cap_s = 0.01"
        " where queue = 'payments'"
    )


async def test_a_payment_is_dispatched_once_and_its_reference_kept(shop: Shop) -> None:
    shop.use()
    payment = await shop.enqueue(amount=Decimal("12.34"))
    assert await shop.work() == {"finished": 1, "retried": 0, "held": 0, "rejected": 0}
    (effect,) = shop.simulator.effects
    assert (effect.key, effect.instruction.minor_units) == (payment, 1234)
    assert await shop.state(payment) == "DISPATCHED"
    row = await shop.conn.fetchrow(
        "select rail_reference, rail_code, latency_ms from payment_outbox_attempts"
        " where outbox_id = $1 and attempt_no = 2",
        payment,
    )
    assert row is not None
    assert (row["rail_reference"], row["rail_code"]) == ("sim-1", "PAID")
    assert row["latency_ms"] >= 0
    assert await shop.violations() == []


async def test_enqueue_belongs_to_the_callers_transaction(shop: Shop) -> None:
    shop.use()
    transaction = shop.conn.transaction()
    await transaction.start()
    await shop.ps.payments.enqueue(shop.conn, instruction(), idempotency_key="k")
    await transaction.rollback()
    assert await shop.work() == {"finished": 0, "retried": 0, "held": 0, "rejected": 0}
    with pytest.raises(NotInTransaction):
        await shop.ps.payments.enqueue(shop.conn, instruction(), idempotency_key="k")


async def test_a_repeated_key_is_the_same_payment_and_never_another(shop: Shop) -> None:
    shop.use()
    made = instruction()
    async with shop.ps.transaction() as tx:
        first = await shop.ps.payments.enqueue(tx, made, idempotency_key="k")
    await shop.work()
    async with shop.ps.transaction() as tx:
        assert await shop.ps.payments.enqueue(tx, made, idempotency_key="k") == first
    other = instruction(instruction_id=made.instruction_id, amount=1)
    with pytest.raises(PaymentKeyReused):
        async with shop.ps.transaction() as tx:
            await shop.ps.payments.enqueue(tx, other, idempotency_key="k")
    await shop.work()
    assert len(shop.simulator.effects) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"amount": 0},
        {"amount": -1},
        {"amount": Decimal("0.001")},
        {"amount": 1.5},
        {"currency": "eur"},
        {"currency": "EURO"},
        {"currency": "QQQ"},
        {"destination": {}},
        {"destination": " "},
        {"details": {"amount": 1}},
    ],
)
async def test_what_cannot_be_paid_is_refused_at_enqueue(
    shop: Shop, values: dict[str, Any]
) -> None:
    shop.use()
    with pytest.raises(PaymentRefused):
        await shop.enqueue("p1", **values)


async def test_a_participants_payments_go_in_order_and_others_do_not_wait(shop: Shop) -> None:
    gate = asyncio.Event()
    rail = Scripted(gate)
    shop.use(rail)
    first = await shop.enqueue("a", instruction_id="a1")
    await shop.enqueue("a", instruction_id="a2")
    await shop.enqueue("b", instruction_id="b1")
    work = asyncio.create_task(shop.work())
    await until(lambda: _dispatched(shop, 1), "b is not held up by a")
    assert [name for name, _ in rail.calls] == ["a1", "b1"]
    gate.set()
    assert (await work)["finished"] == 3
    assert [name for name, _ in rail.calls] == ["a1", "b1", "a2"]
    assert await shop.state(first) == "DISPATCHED"


async def _dispatched(shop: Shop, count: int) -> bool:
    found = await shop.conn.fetchval(
        "select count(*) from payment_outbox_registry where terminal_state = 'DISPATCHED'"
    )
    return bool(found >= count)


async def test_a_refusal_fails_at_once_and_the_next_one_goes(shop: Shop) -> None:
    rail = Scripted(Reject("ACCOUNT_CLOSED", "closed in May"))
    shop.use(rail)
    failed = await shop.enqueue()
    following = await shop.enqueue()
    await shop.work()
    assert await shop.state(failed) == "FAILED"
    assert await shop.attempts(failed) == [
        (1, "DISPATCHING", None),
        (2, "FAILED", "ACCOUNT_CLOSED"),
    ]
    assert await shop.state(following) == "DISPATCHED"


async def test_a_busy_rail_is_tried_again_under_the_same_key(shop: Shop) -> None:
    await _soon(shop)
    rail = Scripted(Retry(code="BUSY"), NotSent("DNS"))
    shop.use(rail)
    payment = await shop.enqueue()
    await until(lambda: _work_until(shop, payment, "DISPATCHED"), "it is paid in the end")
    assert [key for _, key in rail.calls] == [payment] * 3
    assert [code for _, state, code in await shop.attempts(payment) if state == "RETRYABLE"] == [
        "BUSY",
        "DNS",
    ]
    assert await shop.violations() == []


async def _work_until(shop: Shop, payment: UUID, state: str) -> bool:
    await shop.work()
    return await shop.state(payment) == state


@pytest.mark.parametrize("fault", ["lost_after", "lost_before"])
async def test_an_unknown_outcome_is_asked_again_where_the_rail_knows_the_key(
    shop: Shop, fault: str
) -> None:
    await _soon(shop)
    shop.use()
    shop.simulator.script = [fault]
    payment = await shop.enqueue()
    await until(lambda: _work_until(shop, payment, "DISPATCHED"), "it is paid")
    assert [effect.key for effect in shop.simulator.effects] == [payment]
    assert len(shop.simulator.calls) == 2
    assert (await shop.attempts(payment))[1] == (2, "RETRYABLE", "LOST")


@pytest.mark.parametrize("answer", [Unknown(code="HM"), RuntimeError("?"), TimeoutError(), "odd"])
async def test_what_a_rail_without_keys_may_have_paid_is_held_and_never_sent_again(
    shop: Shop, answer: object
) -> None:
    rail = Scripted(answer)
    shop.use(rail, key_window=None)
    payment = await shop.enqueue()
    following = await shop.enqueue()
    assert (await shop.work())["held"] == 1
    assert (await shop.work())["finished"] == 0
    assert await shop.state(payment) == "HELD"
    assert await shop.state(following) == "PENDING", "the participant's order is kept"
    assert len(rail.calls) == 1


async def test_a_rail_that_never_answers_is_given_up_at_its_time_limit(shop: Shop) -> None:
    shop.use(Scripted(asyncio.Event()), key_window=None, timeout_s=0.2)
    payment = await shop.enqueue()
    started = monotonic()
    assert (await shop.work())["held"] == 1
    assert monotonic() - started < 5
    assert (
        await shop.conn.fetchval(
            "select error_code from payment_outbox_inflight where outbox_id = $1", payment
        )
    ) == "TIMEOUT"


async def test_a_held_payment_is_resolved_by_asking_the_rail(shop: Shop) -> None:
    rail = AskableRail(shop.simulator)
    shop.use(rail, key_window=None)
    shop.simulator.script = ["lost_after", "lost_before", "lost_before"]
    paid, refused, silent = [await shop.enqueue(name) for name in ("a", "b", "c")]
    assert (await shop.work())["held"] == 3
    # Which of them was paid is chance; the books say it.
    (effect,) = shop.simulator.effects
    others = [one for one in (paid, refused, silent) if one != effect.key]
    rail.refusals.add(others[0])
    assert await shop.run_job("payments_resolve") == 2
    assert await shop.state(effect.key) == "DISPATCHED"
    assert await shop.state(others[0]) == "FAILED"
    assert await shop.state(others[1]) == "HELD", "not found is no answer"
    assert len(shop.simulator.calls) == 3, "asking sends nothing"


async def test_validation_right_before_the_send_stops_what_was_written_by_hand(shop: Shop) -> None:
    shop.use()
    good = await shop.enqueue()
    closed = await shop.enqueue("p2", destination={"closed": "yes"})
    await shop.work()
    assert await shop.state(closed) == "FAILED"
    assert (await shop.attempts(closed))[1][2] == "VALIDATION"
    assert [effect.key for effect in shop.simulator.effects] == [good]


async def test_a_paused_rail_or_participant_waits_and_goes_on(shop: Shop) -> None:
    shop.use()
    payment = await shop.enqueue("p1")
    for target in ("rail/ach", "participant/p1", "payments"):
        await shop.conn.execute("select penstock.pause_target($1, 'a test')", target)
        assert (await shop.work())["finished"] == 0
        await shop.conn.execute("select penstock.resume_target($1, 'a test')", target)
    assert (await shop.work())["finished"] == 1
    assert await shop.state(payment) == "DISPATCHED"


async def test_a_replay_beyond_the_window_is_refused_until_somebody_has_found_out(
    shop: Shop,
) -> None:
    shop.use(Scripted(Reject("NO")), key_window=timedelta(seconds=31))
    payment = await shop.enqueue()
    await shop.work()
    await shop.conn.execute(
        "update payment_outbox_registry set first_sent_at = first_sent_at - interval '1 minute'"
    )
    with pytest.raises(ReconcileFirst):
        await store.replay(shop.conn, payment, reason="again")
    await store.resolve(shop.conn, payment, "not_paid", reason="asked the bank")
    await store.replay(shop.conn, payment, reason="again")
    assert (await shop.work())["finished"] == 1


async def test_an_operators_code_table_overrules_the_rail_but_not_a_payment(shop: Shop) -> None:
    shop.use(Scripted(Unknown(code="R03"), Sent("x", "R04")))
    await shop.conn.execute(
        """select put_payment_rail('ach', '{"idempotent": true, "idempotency_window": "24 hours",
           "timeout_ms": 30000, "codes": {"R03": "REJECT", "R04": "REJECT"}}', 'a test')"""
    )
    first, second = await shop.enqueue("a"), await shop.enqueue("b")
    await shop.work()
    assert {await shop.state(first), await shop.state(second)} == {"FAILED", "DISPATCHED"}


async def test_a_rail_that_the_database_knows_otherwise_stops_the_start(shop: Shop) -> None:
    await shop.conn.execute(
        """select put_payment_rail('ach', '{"idempotent": true, "timeout_ms": 30000,
           "idempotency_window": "1 hour"}', 'a test')"""
    )
    shop.use(key_window=DAY)
    with pytest.raises(WrongUsage, match="knows it otherwise"):
        await shop.work()


def test_rails_that_cannot_be_meant_are_refused_when_declared(database_url: str) -> None:
    payments = application(database_url).payments
    payments.rail("ach", Scripted(), key_window=None)
    for name, window, limit in (
        ("ach", None, 30.0),
        ("", None, 30.0),
        ("sepa", timedelta(seconds=30), 30.0),
        ("sepa", None, 0.0),
    ):
        with pytest.raises(BadHandler):
            payments.rail(name, Scripted(), key_window=window, timeout_s=limit)
    for unfit in (object(), Scripted):
        with pytest.raises(BadHandler, match="dispatch") as refused:
            payments.rail("sepa", cast(Any, unfit), key_window=None)
        assert "async def dispatch" in refused.value.todo


async def test_a_rail_that_raises_is_told_of_by_name_and_type_alone(shop: Shop) -> None:
    seen: list[Observation] = []
    shop.ps.subscribe(seen.append)
    shop.use(Scripted(AttributeError(f"no field {IBAN['iban']}")), key_window=None)
    payment = await shop.enqueue()
    assert (await shop.work())["held"] == 1
    raised = [each for each in seen if isinstance(each, HandlerRaised)]
    assert raised == [HandlerRaised("payments", "ach", payment, 1, "AttributeError")]


async def test_many_are_enqueued_at_once_in_the_order_given(shop: Shop) -> None:
    shop.use()
    pairs = [(instruction(f"p{n % 7}"), "k") for n in range(50)]
    async with shop.ps.transaction() as tx:
        ids = await shop.ps.payments.enqueue_many(tx, pairs)
    assert len(set(ids)) == 50
    assert (await shop.work())["finished"] == 50
    by_key = {effect.key: effect.instruction for effect in shop.simulator.effects}
    assert [by_key[one].instruction_id for one in ids] == [made.instruction_id for made, _ in pairs]
    assert await shop.violations() == []


async def test_a_payment_is_withdrawn_only_before_it_was_sent(shop: Shop) -> None:
    shop.use()
    first, second = await shop.enqueue("a"), await shop.enqueue("b")
    assert await shop.ps.payments.cancel(shop.conn, first, reason="typed twice")
    await shop.work()
    assert not await shop.ps.payments.cancel(shop.conn, second, reason="too late")
    assert [effect.key for effect in shop.simulator.effects] == [second]


@pytest.mark.parametrize("listen", ["auto", "off"])
async def test_a_notification_and_a_poll_each_bring_a_payment_to_its_rail(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]", listen: str
) -> None:
    # With NOTIFY the poll is made too rare to help; without it, polling alone must do.
    poll_ms = 60_000 if listen == "auto" else 250
    await conn.execute(
        "update penstock.queue_config set poll_ms = $1 where queue = 'payments'", poll_ms
    )
    seen: list[Observation] = []
    async with opened(database_url, listen=listen) as shop:
        shop.use()
        shop.ps.subscribe(seen.append)
        work = asyncio.create_task(shop.ps.work(only=["payments"]))
        await until_true(
            lambda: any(one.name == "worker_started" for one in seen), "the worker runs"
        )
        if listen == "auto":
            await until_true(
                lambda: any(isinstance(one, WokeUp) for one in seen), "the listener has looked"
            )
        await shop.enqueue(destination=IBAN)
        await until_true(lambda: shop.simulator.effects, "it is paid", within_s=5)
        if listen == "auto":
            # The claim of before may have found it first: then the notification wakes another.
            await until_true(
                lambda: any(isinstance(one, WokeUp) and one.by == "notify" for one in seen),
                "the notification was heard",
            )
        shop.ps.stop()
        await work
    by = {one.by for one in seen if isinstance(one, WokeUp)}
    assert ("notify" in by) == (listen == "auto")


async def test_a_worker_that_stops_leaves_an_unanswered_payment_unknown(database_url: str) -> None:
    async with opened(database_url, drain_s=0.2) as shop:
        shop.simulator.faults = Faults(slow_s=30)
        shop.simulator.script = ["slow_after"]
        shop.use(key_window=None)
        payment = await shop.enqueue()
        work = asyncio.create_task(shop.ps.work(only=["payments"]))
        await until_true(lambda: shop.simulator.effects, "the money moved")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert await shop.state(payment) == "HELD"
        assert await shop.violations() == []
