"""The ledger as the bridge sees it: confirm, cancel, ask. Opened only when it is first needed.

While it does not answer, claims that would only fail are held back: a message keeps its attempts
for failures of its own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from uuid import UUID

from penstock.intake.errors import FunctionNotAllowed
from penstock.kernel.backoff import Backoff
from penstock.kernel.database import Database, PooledConnection, call
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.events import Events, LedgerBack, LedgerDown

BATCHED_FUNCTION = "finalize_transaction"
CALL_TIMEOUT_S = 20.0

_FINALIZE_MANY = (
    "select ordinal, resource_id, reservation_id, outcome from public.finalize_many($1::jsonb[])"
)
_OUTCOMES = "select reservation_id, outcome from public.ledger_outcomes($1::uuid[])"
_CANCEL = "select public.cancel_transaction($1::uuid) as outcome"
_TICKET = (
    "select resource_id, pool_id, user_id, reservation_id, confirmed_at"
    " from public.ledger_tickets($1::uuid, 1)"
)


class LedgerAway(Exception):
    """The ledger does not answer, or none is named: nothing is known, and nothing is lost."""


class Ledger:
    """Calls to the ledger database, with a memory of whether it answers."""

    def __init__(
        self, database: Database | None, events: Events, *, functions: Collection[str]
    ) -> None:
        self._database = database
        self._events = events
        self._functions = {name: _statement(name) for name in functions}
        self._opening = asyncio.Lock()
        self._opened = False
        self._down_since: float | None = None
        self._probe_at = 0.0
        self._delays = Backoff(base_s=0.2, cap_s=1.0).delays_s()

    @property
    def is_named(self) -> bool:
        """Whether there is a ledger at all; pools that commit by webhook need none."""
        return self._database is not None

    @property
    def is_down(self) -> bool:
        """Whether the last call met no answer."""
        return self._down_since is not None

    async def probe(self) -> bool:
        """Whether it answers, asked again at most a few times a second while it is down."""
        if not self.is_down:
            return True
        if monotonic() < self._probe_at:
            return False
        try:
            async with self._connection() as conn:
                await call(conn, "select 1")
        except LedgerAway:
            return False
        return True

    async def finalize(self, payloads: Sequence[str], function: str) -> list[str]:
        """Confirm reservations; per payload confirmed, already, conflict, cancelled or invalid.

        Raises FunctionNotAllowed for a function that is not on the list, LedgerAway, and what the
        database says; a function of one's own is called once per payload.
        """
        if function not in self._functions:
            raise FunctionNotAllowed(f"{function!r} is not on the list of commit functions")
        async with self._connection() as conn:
            if function == BATCHED_FUNCTION:
                rows = await call(conn, _FINALIZE_MANY, list(payloads))
                answers = [""] * len(payloads)
                for row in rows:
                    answers[row["ordinal"] - 1] = row["outcome"]
                return answers
            for payload in payloads:
                await call(conn, self._functions[function], payload)
            return ["confirmed"] * len(payloads)

    async def outcomes(self, reservations: Sequence[UUID]) -> dict[UUID, str]:
        """The final word on reservations, CONFIRMED or CANCELLED, where there is one."""
        async with self._connection() as conn:
            rows = await call(conn, _OUTCOMES, list(reservations))
        return {row["reservation_id"]: row["outcome"] for row in rows}

    async def cancel(self, reservation: UUID) -> str:
        """Make sure that a reservation is never confirmed: CANCELLED, or CONFIRMED if it is."""
        async with self._connection() as conn:
            rows = await call(conn, _CANCEL, reservation)
        return str(rows[0]["outcome"])

    async def ticket(self, resource: UUID) -> str | None:
        """The ticket of a resource as a JSON array for reconciling, or None."""
        async with self._connection() as conn:
            # Pages begin after an id: the one before this leads to it.
            rows = await call(conn, _TICKET, UUID(int=max(resource.int - 1, 0)))
        if not rows or rows[0]["resource_id"] != resource:
            return None
        return json.dumps([{name: _text(value) for name, value in rows[0].items()}])

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[PooledConnection]:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                async with (await self._open()).connection(timeout_s=5.0) as conn:
                    yield conn
        except (DatabaseUnreachable, TimeoutError) as error:
            self._mark_down(error)
            raise LedgerAway from error
        self._mark_up()

    async def _open(self) -> Database:
        if self._database is None:
            raise DatabaseUnreachable("no ledger database is named")
        async with self._opening:
            if not self._opened:
                await self._database.open()
                self._opened = True
        return self._database

    def _mark_down(self, error: Exception) -> None:
        delay_s = next(self._delays)
        self._probe_at = monotonic() + delay_s
        if self._down_since is None:
            self._down_since = monotonic()
            cause = error.__cause__ or error
            self._events.emit(LedgerDown(type(cause).__name__, delay_s))

    def _mark_up(self) -> None:
        if self._down_since is not None:
            self._events.emit(LedgerBack(monotonic() - self._down_since))
            self._down_since = None
            self._delays = Backoff(base_s=0.2, cap_s=1.0).delays_s()


def _statement(function: str) -> str:
    """The call of a commit function; names come from the settings' allow-list, checked there."""
    parts = function.split(".") if "." in function else ["public", function]
    return "select " + ".".join(f'"{part}"' for part in parts) + "($1::jsonb)"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
