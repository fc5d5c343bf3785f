"""Calls the rails. One lane per rail; each payment goes its own way, many at a time.

The order of a dispatch: check the instruction again, ask the database for leave to send (the last
look at the lease), look at the own clock, call the rail within its time limit, say what came of it.
From the leave on the money may have moved: whatever goes wrong then is Unknown, never Retry.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import cast

from penstock.kernel.database import PASSING_ERRORS, Database
from penstock.kernel.eager import within
from penstock.kernel.events import Events, HandlerRaised
from penstock.kernel.failpoints import failpoint
from penstock.kernel.gathering import Gathering, InOrder
from penstock.kernel.handler import Answer
from penstock.kernel.queue import Item
from penstock.kernel.verdict import DONE, Reject, Retry, Unknown, Verdict
from penstock.payments import store
from penstock.payments.errors import PaymentRefused
from penstock.payments.instruction import Instruction, stored_instruction
from penstock.payments.model import QUEUE, Claimed, RailClass
from penstock.payments.queue import Payment, newest_claims
from penstock.payments.rails import (
    ChecksDestination,
    NotSent,
    Rail,
    Sent,
    reclassified,
    well_formed,
)

ATTEMPTS_BY_POLICY = 1_000_000  # the queue's own max_attempts is what counts
PERMITS_PER_CALL = 500
# The lease must outlast the rail's time limit by this much when the call begins.
MARGIN_S = 2.0
NOT_AGAIN = Retry(code="LEASE_LOST", reason="the lease was lost before anything was sent")


@dataclass(frozen=True, slots=True)
class Registered:
    """A rail as an application declares it. Without `key_window` nothing is ever sent twice."""

    name: str
    rail: Rail
    key_window: timedelta | None
    timeout_s: float
    concurrency: int
    codes: Mapping[str, RailClass] = field(default_factory=dict)


class Permits:
    """Asks the database for leave to send; those who ask together are asked for together."""

    def __init__(self, database: Database) -> None:
        self._database = database
        line = InOrder[Claimed, float](
            count_max=PERMITS_PER_CALL, weight=lambda _: 1, weight_max=PERMITS_PER_CALL
        )
        self._gathering = Gathering(self.ask_all, line, calls_max=2)

    async def ask(self, claimed: Claimed) -> float:
        """Until when, by the own clock, the lease is surely held; 0 if it must not be sent."""
        return await self._gathering.ask(claimed)

    async def ask_all(self, claims: Sequence[Claimed]) -> list[float]:
        """The same for many at once, answered in order."""
        # A payment whose lease ran out unnoticed may have been claimed again by this very process:
        # the database answers by payment, so only the newest claim may ask, and only it is meant.
        newest = newest_claims(claims)
        before = monotonic()
        async with self._database.connection() as conn:
            permits = await store.mark_sent(conn, list(newest.values()))
        return [
            before + permits[claimed.outbox_id].lease_s
            if claimed.outbox_id in permits and newest[claimed.outbox_id] is claimed
            else 0.0
            for claimed in claims
        ]


class RailLane:
    """Dispatches the payments of one rail, at most `concurrency` at a time in this process."""

    size = 1
    max_attempts = ATTEMPTS_BY_POLICY

    def __init__(self, registered: Registered, permits: Permits, events: Events) -> None:
        self.concurrency = registered.concurrency
        self.timeout_s = registered.timeout_s
        self._registered = registered
        self._permits = permits
        self._events = events
        rail = registered.rail
        self._check = rail.check_destination if isinstance(rail, ChecksDestination) else None

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Dispatch each; answers what is to be recorded."""
        return [await self._dispatch(cast(Payment, item)) for item in items]

    async def _dispatch(self, payment: Payment) -> Verdict:
        try:
            instruction = self._checked(payment.claim)
        except PaymentRefused as refused:
            return Reject("VALIDATION", refused.what)
        try:
            held_until = await self._permits.ask(payment.claim)
        except PASSING_ERRORS as error:
            # Whether the leave was given is not known, but nothing was sent.
            return Retry(code="DATABASE", reason=type(error).__name__)
        except asyncio.CancelledError:
            return Retry(timedelta(0), code="STOPPED", reason="the worker stopped before it sent")
        failpoint("before_effect")
        # Time may have passed since the leave was given: a process can be stopped anywhere.
        if held_until - monotonic() < self.timeout_s + MARGIN_S:
            return NOT_AGAIN
        return await self._send(payment, instruction)

    def _checked(self, claimed: Claimed) -> Instruction:
        """The instruction, fit to be sent over this rail; raises PaymentRefused."""
        instruction = stored_instruction(
            claimed.instruction_id,
            claimed.participant_id,
            rail=claimed.rail_type,
            payload=claimed.payload,
        )
        problem = self._check(instruction.destination) if self._check is not None else None
        if problem is not None:
            raise PaymentRefused(problem)
        return instruction

    async def _send(self, payment: Payment, instruction: Instruction) -> Verdict:
        started = monotonic()
        try:
            outcome: object = await within(
                self._registered.rail.dispatch(instruction, payment.id), self.timeout_s
            )
        except NotSent as error:
            outcome = Retry(error.after, code=error.code)
        except TimeoutError:
            outcome = Unknown("the rail did not answer in time", "TIMEOUT")
        except asyncio.CancelledError:
            # Shutdown. To release it would say that nothing was sent, and that is not known.
            outcome = Unknown("the worker stopped while the rail was called", "STOPPED")
        except Exception as error:  # the boundary: a rail may raise anything after it has sent
            name = type(error).__name__
            self._events.emit(
                HandlerRaised(QUEUE, self._registered.name, payment.id, payment.attempt, name)
            )
            outcome = Unknown(name, "RAIL_RAISED")
        failpoint("after_effect")
        payment.latency_ms = int((monotonic() - started) * 1000)
        return self._verdict(payment, outcome)

    def _verdict(self, payment: Payment, outcome: object) -> Verdict:
        final = reclassified(well_formed(outcome), self._registered.codes)
        payment.rail_code = final.code
        if isinstance(final, Sent):
            payment.reference = final.reference
            return DONE
        return final
