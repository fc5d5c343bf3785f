"""Asks rails what became of held payments. It ends what is certain and never sends anything."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from penstock.kernel.database import PooledConnection
from penstock.kernel.events import Events, HandlerRaised, PaymentResolved
from penstock.kernel.verdict import Reject, Unknown
from penstock.payments import store
from penstock.payments.errors import PaymentRefused
from penstock.payments.instruction import stored_instruction
from penstock.payments.model import QUEUE, Held, Resolution, storable
from penstock.payments.rails import AnswersStatus, RailOutcome, Sent, well_formed
from penstock.payments.relayer import Registered

ASKED_AT_ONCE = 8
ASKED_PER_RUN = 96
ASK_S_MAX = 10.0
# Less than a scheduled job may take: what is left is the next run's.
SECONDS_MAX = 30.0


@dataclass(slots=True)
class Resolver:
    """The scheduled job; knows the rails that this process has, and where it stopped asking.

    Those that nobody can tell about stay held: each run goes on behind the last one asked, so that
    they do not keep out the others. What is certain is recorded before the next ones are asked.
    """

    rails: Mapping[str, Registered]
    events: Events
    last: Held | None = None

    async def run(self, conn: PooledConnection) -> int:
        """Ask about held payments, resolve what a rail is sure of; returns how many."""
        started, resolved = monotonic(), 0
        for _ in range(0, ASKED_PER_RUN, ASKED_AT_ONCE):
            held = await store.held(conn, ASKED_AT_ONCE, rails=self.rails, after=self.last)
            resolved += await self._resolve(conn, held)
            self.last = held[-1] if len(held) == ASKED_AT_ONCE else None
            if self.last is None or monotonic() - started > SECONDS_MAX:
                break
        return resolved

    async def _resolve(self, conn: PooledConnection, held: Sequence[Held]) -> int:
        resolved = 0
        answers = await asyncio.gather(*map(self._ask, held))
        for one, answer in zip(held, answers, strict=True):
            resolution = _resolution(answer)
            if resolution is None:
                continue
            if await store.resolve_by_status(
                conn,
                one.outbox_id,
                resolution,
                reference=storable(answer.reference) if isinstance(answer, Sent) else None,
                code=storable(answer.code),
            ):
                resolved += 1
                self.events.emit(PaymentResolved(one.outbox_id, one.rail_type, resolution))
        return resolved

    async def _ask(self, held: Held) -> RailOutcome:
        rail = self.rails[held.rail_type].rail
        if not isinstance(rail, AnswersStatus):
            return Unknown(code="NO_STATUS_QUERY")
        try:
            instruction = stored_instruction(
                held.instruction_id,
                held.participant_id,
                rail=held.rail_type,
                payload=held.payload,
            )
            async with asyncio.timeout(ASK_S_MAX):
                return well_formed(await rail.status_query(instruction, held.outbox_id))
        except (PaymentRefused, TimeoutError):
            return Unknown(code="NO_ANSWER")
        except Exception as error:  # the boundary: one rail that fails must not stop the others
            name, attempt = type(error).__name__, (held.attempt_no + 1) // 2
            self.events.emit(HandlerRaised(QUEUE, held.rail_type, held.outbox_id, attempt, name))
            return Unknown(name, "RAIL_RAISED")


def _resolution(answer: RailOutcome) -> Resolution | None:
    """What an answer settles. That a rail has not heard of a payment settles nothing: a request
    may still be on its way, so only a person may say that it was not paid."""
    if isinstance(answer, Sent):
        return "dispatched"
    if isinstance(answer, Reject):
        return "failed"
    return None
