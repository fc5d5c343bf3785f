"""Asks rails what became of held payments. It ends what is certain and never sends anything."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.kernel.database import PooledConnection
from penstock.kernel.events import Events, HandlerRaised, PaymentResolved
from penstock.kernel.verdict import Reject, Unknown
from penstock.payments import store
from penstock.payments.errors import PaymentRefused
from penstock.payments.instruction import stored_instruction
from penstock.payments.model import QUEUE, Held, Resolution
from penstock.payments.rails import AnswersStatus, Sent, StatusOutcome
from penstock.payments.relayer import Registered

ASKED_PER_RUN = 100
ASKED_AT_ONCE = 8
ASK_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Resolver:
    """The scheduled job; knows the rails that this process has."""

    rails: Mapping[str, Registered]
    events: Events

    async def run(self, conn: PooledConnection) -> int:
        """Ask about held payments, resolve what a rail is sure of; returns how many."""
        held = [one for one in await store.held(conn, ASKED_PER_RUN) if one.rail_type in self.rails]
        answers = await self._ask_all(held)
        resolved = 0
        for one, answer in zip(held, answers, strict=True):
            resolution = _resolution(answer)
            if resolution is None:
                continue
            if await store.resolve_by_status(
                conn,
                one.outbox_id,
                resolution,
                reference=answer.reference if isinstance(answer, Sent) else None,
                code=answer.code,
            ):
                resolved += 1
                self.events.emit(PaymentResolved(one.outbox_id, one.rail_type, resolution))
        return resolved

    async def _ask_all(self, held: Sequence[Held]) -> list[StatusOutcome]:
        slots = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(one: Held) -> StatusOutcome:
            async with slots:
                return await self._ask(one)

        return list(await asyncio.gather(*(ask(one) for one in held)))

    async def _ask(self, held: Held) -> StatusOutcome:
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
                return await rail.status_query(instruction, held.outbox_id)
        except (PaymentRefused, TimeoutError):
            return Unknown(code="NO_ANSWER")
        except Exception as error:  # the boundary: one rail that fails must not stop the others
            name, attempt = type(error).__name__, (held.attempt_no + 1) // 2
            self.events.emit(HandlerRaised(QUEUE, held.rail_type, held.outbox_id, attempt, name))
            return Unknown(name, "RAIL_RAISED")


def _resolution(answer: object) -> Resolution | None:
    """What an answer settles. That a rail has not heard of a payment settles nothing: a request
    may still be on its way, so only a person may say that it was not paid."""
    if isinstance(answer, Sent):
        return "dispatched"
    if isinstance(answer, Reject):
        return "failed"
    return None
