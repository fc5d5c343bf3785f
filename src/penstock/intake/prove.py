"""The invariants of intake, I1 to I9, across both databases and while they are at work.

Nothing is locked. What is compared is read in the order in which it can only become truer: sold
slots before tickets for I2, tickets before slots for I1 and I3; both only ever come and never go.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from penstock.intake import store
from penstock.kernel.proof import SECOND_LOOK_S, Proof, Violation, confirmed
from penstock.kernel.queue import Connection

PAGE = 10_000
INVARIANTS = {
    "I1": "a resource has at most one ticket, and it is the last claimant's",
    "I2": "a sold slot has a ticket for the same resource and user",
    "I3": "a ticket's slot is never on offer and never missing",
    "I4": "free + reserved + sold is what the pool was given",
    "I5": "a reserved slot has exactly one message, or its commit has started",
    "I6": "a request id holds one slot",
    "I7": "a reservation is confirmed or cancelled, never both",
    "I8": "no free slot lies where claims do not look",
    "I9": "a resource whose commit has started is never offered again",
}
ACROSS = ("I1", "I2", "I3", "I7")


class Ticket(Protocol):
    """A confirmed sale, as far as it is compared."""

    @property
    def resource_id(self) -> UUID:
        """What was sold."""
        ...

    @property
    def pool_id(self) -> str:
        """Of which pool."""
        ...

    @property
    def user_id(self) -> str:
        """To whom."""
        ...

    @property
    def reservation_id(self) -> UUID | None:
        """By which claim."""
        ...


class LedgerReads(Protocol):
    """The ledger's store, as far as it is needed here; products do not import each other."""

    async def tickets(
        self, conn: Connection, after: UUID | None, limit: int = ...
    ) -> Sequence[Ticket]:
        """A page of tickets, by resource."""
        ...

    async def prove(self, conn: Connection) -> Sequence[Mapping[str, Any]]:
        """Violations in the ledger alone."""
        ...

    async def prove_sold(
        self,
        conn: Connection,
        resources: Sequence[UUID],
        *,
        users: Sequence[str],
        reservations: Sequence[UUID],
    ) -> Sequence[Mapping[str, Any]]:
        """Sold slots that the ledger does not confirm."""
        ...


@dataclass(frozen=True, slots=True)
class Equation:
    """One pool, as it must add up; `tickets` is None where no ledger was asked."""

    pool_id: str
    slots: int
    free: int
    reserved: int
    sold: int
    tickets: int | None

    @property
    def text(self) -> str:
        """The equation as a line."""
        left = (
            f"{self.slots} slots = {self.free} free + {self.reserved} reserved + {self.sold} sold"
        )
        if self.tickets is None:
            return left
        sign = "=" if self.tickets == self.sold else "≤" if self.sold < self.tickets else ">"
        return f"{left}      engine {self.sold} {sign} ledger {self.tickets}"


@dataclass(frozen=True, slots=True)
class IntakeProof:
    """The equation of each pool, and the invariants."""

    equations: Sequence[Equation]
    proof: Proof


class Prover:
    """Looks at both databases; without a ledger only at what the engine can tell."""

    def __init__(
        self, engine: Connection, ledger: Connection | None, reads: LedgerReads, *, page: int = PAGE
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._reads = reads
        self._page = page
        self._tickets: Counter[str] = Counter()

    async def prove(self, *, pause_s: float = SECOND_LOOK_S) -> IntakeProof:
        """Look, look again at what was found, and add up."""
        violations = await confirmed(self._look, pause_s=pause_s)
        unseen = {} if self._ledger else dict.fromkeys(ACROSS, "no ledger database is named")
        seen = {number: text for number, text in INVARIANTS.items() if number not in unseen}
        return IntakeProof(await self._equations(), Proof(seen, violations, unseen))

    async def _equations(self) -> list[Equation]:
        return [
            Equation(
                pool.pool_id,
                pool.stocked,
                pool.available,
                pool.reserved,
                pool.consumed,
                self._tickets[pool.pool_id] if self._ledger else None,
            )
            for pool in await store.pools(self._engine)
        ]

    async def _look(self) -> list[Violation]:
        found = [_violation(one) for one in await store.prove(self._engine)]
        if self._ledger is not None:
            found += await self._sold_without_ticket(self._ledger)
            found += await self._tickets_against_slots(self._ledger)
            found += [Violation(**row) for row in await self._reads.prove(self._ledger)]
        return found

    async def _sold_without_ticket(self, ledger: Connection) -> list[Violation]:
        found: list[Violation] = []
        after: UUID | None = None
        while page := await store.sold(self._engine, after, self._page):
            rows = await self._reads.prove_sold(
                ledger,
                [slot.resource_id for slot in page],
                users=[slot.user_id for slot in page],
                reservations=[slot.reservation_id for slot in page],
            )
            found += [Violation(**row) for row in rows]
            after = page[-1].resource_id
        return found

    async def _tickets_against_slots(self, ledger: Connection) -> list[Violation]:
        found: list[Violation] = []
        after: UUID | None = None
        self._tickets.clear()
        while page := await self._reads.tickets(ledger, after, self._page):
            self._tickets.update(ticket.pool_id for ticket in page)
            rows = await store.prove_tickets(
                self._engine,
                [ticket.resource_id for ticket in page],
                users=[ticket.user_id for ticket in page],
                reservations=[ticket.reservation_id for ticket in page],
            )
            found += [_violation(one) for one in rows]
            after = page[-1].resource_id
        return found


def _violation(found: Any) -> Violation:
    return Violation(found.invariant, found.subject, found.detail)
