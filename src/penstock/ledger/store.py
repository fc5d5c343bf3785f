"""One call per SQL function of the ledger database. Nothing here decides anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.kernel.database import call
from penstock.kernel.queue import Connection

Rows = Sequence[Mapping[str, Any]]

_FINALIZE_MANY = (
    "select ordinal, resource_id, reservation_id, outcome from public.finalize_many($1::jsonb[])"
)
_TICKETS = (
    "select resource_id, pool_id, user_id, reservation_id, confirmed_at"
    " from public.ledger_tickets($1::uuid, $2::int)"
)
_OUTCOMES = "select reservation_id, outcome from public.ledger_outcomes($1::uuid[])"
_SOLD = (
    "select invariant, subject, detail"
    " from public.ledger_prove_sold($1::uuid[], $2::text[], $3::uuid[])"
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A confirmed sale."""

    resource_id: UUID
    pool_id: str
    user_id: str
    reservation_id: UUID | None
    confirmed_at: datetime


async def finalize(conn: Connection, payload: str) -> None:
    """Confirm one reservation, given as JSON; raises OwnershipConflict or the like by code."""
    await call(conn, "select public.finalize_transaction($1::jsonb)", payload)


async def finalize_many(conn: Connection, payloads: Sequence[str]) -> list[str]:
    """Confirm many; per payload confirmed, already, conflict, cancelled or invalid."""
    rows = await call(conn, _FINALIZE_MANY, list(payloads))
    return [row["outcome"] for row in sorted(rows, key=lambda row: int(row["ordinal"]))]


async def cancel(conn: Connection, reservation_id: UUID) -> str:
    """See to it that a reservation is never confirmed: CANCELLED, or CONFIRMED if it is."""
    rows = await call(conn, "select public.cancel_transaction($1) as outcome", reservation_id)
    return str(rows[0]["outcome"])


async def outcomes(conn: Connection, reservation_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The final word on reservations, where there is one."""
    rows = await call(conn, _OUTCOMES, list(reservation_ids))
    return {row["reservation_id"]: row["outcome"] for row in rows}


async def tickets(conn: Connection, after: UUID | None, limit: int = 10_000) -> list[Ticket]:
    """A page of tickets, by resource."""
    return [Ticket(*row.values()) for row in await call(conn, _TICKETS, after, limit)]


async def prove(conn: Connection) -> Rows:
    """Violations in the ledger alone (I7): invariant, subject, detail."""
    return await call(conn, "select invariant, subject, detail from public.ledger_prove()")


async def prove_sold(
    conn: Connection,
    resources: Sequence[UUID],
    *,
    users: Sequence[str],
    reservations: Sequence[UUID],
) -> Rows:
    """Sold slots of the engine that the ledger does not confirm (I2)."""
    return await call(conn, _SOLD, list(resources), list(users), list(reservations))
