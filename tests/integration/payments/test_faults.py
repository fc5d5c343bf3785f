"""Relayers killed, stopped and taken over in the middle of a dispatch; the rails' books decide."""

import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.rails import instruction
from tests.support.relayers import Relayers, relaying
from tests.support.waiting import until, until_true

from penstock.kernel.events import Events
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.verdict import Done, Retry
from penstock.payments.model import Claimed
from penstock.payments.queue import Payment
from penstock.payments.relayer import MARGIN_S, Permits, RailLane, Registered
from penstock.payments.simulator import Simulator, SimulatorRail

pytestmark = pytest.mark.fault
PAST_ANY_LEASE = timedelta(minutes=3)


@pytest.fixture
async def relayers(database_url: str, tmp_path: Path) -> AsyncIterator[Relayers]:
    async with relaying(database_url, tmp_path) as found:
        yield found


async def _is(relayers: Relayers, payment: UUID, state: str) -> bool:
    return await relayers.state(payment) == state


async def _until(relayers: Relayers, payment: UUID, state: str) -> None:
    await until(lambda: _is(relayers, payment, state), f"it is {state}", within_s=20)


@pytest.mark.parametrize("point", ["after_claim", "before_effect", "after_effect", "before_finish"])
async def test_killed_at_any_point_a_payment_with_a_key_is_paid_once(
    relayers: Relayers, point: str
) -> None:
    payment = await relayers.payments.enqueue(rail="keyed")
    assert await relayers.start(f"{point}=kill").ended() == -signal.SIGKILL
    paid_before = relayers.keyed.paid(payment)
    assert (paid_before is not None) == (point in ("after_effect", "before_finish"))
    await relayers.payments.advance(PAST_ANY_LEASE)
    healthy = relayers.start()
    await _until(relayers, payment, "DISPATCHED")
    await healthy.drained()
    assert relayers.keyed.doubles() == {}
    (effect,) = relayers.keyed.effects
    reference = await relayers.payments.conn.fetchval(
        "select rail_reference from payment_outbox_attempts where state = 'DISPATCHED'"
    )
    assert reference == effect.reference == (paid_before or effect.reference)
    assert [state for _, state, _ in await relayers.payments.attempts(payment)] == [
        "DISPATCHING",
        "ZOMBIE_REQUEUE",
        "DISPATCHING",
        "DISPATCHED",
    ]
    assert await relayers.payments.violations() == []


async def test_killed_after_paying_over_a_rail_without_keys_it_is_held_and_not_paid_again(
    relayers: Relayers,
) -> None:
    payment = await relayers.payments.enqueue(rail="plain")
    assert await relayers.start("after_effect=kill").ended() == -signal.SIGKILL
    await relayers.payments.advance(PAST_ANY_LEASE)
    healthy = relayers.start()
    await _until(relayers, payment, "HELD")
    await healthy.drained()
    assert relayers.plain.calls == [payment]
    assert await relayers.payments.violations() == []


async def test_stopped_before_it_asks_for_leave_it_sends_nothing_when_it_wakes(
    relayers: Relayers,
) -> None:
    payment = await relayers.payments.enqueue(rail="plain")
    stopped = relayers.start("after_claim=stop")
    await until(lambda: _is(relayers, payment, "DISPATCHING"), "it was claimed", within_s=20)
    await relayers.payments.advance(PAST_ANY_LEASE)
    assert await relayers.payments.reap() == ["ZOMBIE_REQUEUE"]
    healthy = relayers.start()
    await _until(relayers, payment, "DISPATCHED")
    stopped.send(signal.SIGCONT)
    await until_true(lambda: stopped.observed("finish_refused"), "it was refused")
    await stopped.drained()
    await healthy.drained()
    assert relayers.plain.calls == [payment], "a rail without keys was called once"


async def test_stopped_on_the_brink_of_sending_the_rail_recognises_the_key(
    relayers: Relayers,
) -> None:
    payment = await relayers.payments.enqueue(rail="keyed")
    stopped = relayers.start("before_effect=stop")
    await until(lambda: _sent(relayers), "it has leave to send", within_s=20)
    await relayers.payments.advance(PAST_ANY_LEASE)
    assert await relayers.payments.reap() == ["ZOMBIE_REQUEUE"]
    healthy = relayers.start()
    await _until(relayers, payment, "DISPATCHED")
    stopped.send(signal.SIGCONT)
    await until_true(
        lambda: stopped.observed("finish_refused") or stopped.observed("finished"), "it has ended"
    )
    await stopped.drained()
    await healthy.drained()
    assert [effect.key for effect in relayers.keyed.effects] == [payment]
    assert await relayers.payments.violations() == []


async def _sent(relayers: Relayers) -> bool:
    return bool(
        await relayers.payments.conn.fetchval(
            "select count(*) from payment_outbox_inflight where phase = 'sent'"
        )
    )


async def test_a_success_that_comes_too_late_is_recorded_and_nothing_is_sent_again(
    relayers: Relayers,
) -> None:
    payment = await relayers.payments.enqueue(rail="plain")
    stopped = relayers.start("after_effect=stop")
    await until_true(lambda: relayers.plain.effects, "the money moved", within_s=20)
    await relayers.payments.advance(PAST_ANY_LEASE)
    assert await relayers.payments.reap() == ["HELD"]
    stopped.send(signal.SIGCONT)
    await _until(relayers, payment, "DISPATCHED")
    await stopped.drained()
    assert stopped.observed("payment_late")
    assert relayers.plain.calls == [payment]
    assert await relayers.payments.violations() == []


class _Until(Permits):
    """Gives leave until a fixed time of the own clock."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    async def ask(self, claimed: Claimed) -> float:
        return self.deadline


@pytest.mark.parametrize(("spare_s", "verdict"), [(-0.1, Retry), (5.0, Done)])
async def test_a_lease_that_does_not_outlast_the_call_stops_the_send(
    spare_s: float, verdict: type
) -> None:
    """A process may have been stopped since the leave was given; only its own clock knows."""
    simulator = Simulator()
    registered = Registered("ach", SimulatorRail(simulator), None, 1.0, 1)
    lane = RailLane(registered, _Until(monotonic() + 1.0 + MARGIN_S + spare_s), Events())
    (answer,) = await lane.handle([_claimed()])
    assert isinstance(answer, verdict)
    assert len(simulator.calls) == (verdict is Done)


def _claimed() -> Item:
    made = instruction()
    values: dict[str, Any] = dict.fromkeys(Claimed.__slots__)
    values |= {
        "outbox_id": uuid4(),
        "instruction_id": made.instruction_id,
        "participant_id": made.participant_id,
        "rail_type": "ach",
        "payload": made.payload(),
    }
    claimed = Claimed(**values)
    lease: Any = Lease(uuid4(), 1, values["claimed_at"], monotonic() + 60)
    return Payment(
        key=1,
        id=claimed.outbox_id,
        topic="ach",
        payload=b"",
        headers={},
        created_at=values["created_at"],
        attempt=1,
        max_attempts=10,
        lease=lease,
        claimed=claimed,
    )
