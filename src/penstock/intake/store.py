"""One call per SQL function that the back office uses: pools, dead letters' payload, proof.

What buyers and the bridge use is in `engine.py`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.intake.model import PoolStats, SoldSlot, Violation
from penstock.kernel.database import call
from penstock.kernel.queue import Connection

Rows = Sequence[Mapping[str, Any]]

_POOLS = (
    "select pool_id, is_active, opens_at, closes_at, max_per_user, hold_s, stocked, available,"
    " reserved, consumed from public.intake_pool_stats order by pool_id"
)
_SET = "select public.intake_pool_set($1::text, $2::jsonb, $3::text, $4::text) as audit_id"
_OPEN = "select public.intake_pool_open($1::text, $2::text, $3::text) as audit_id"
_CLOSE = "select public.intake_pool_close($1::text, $2::text, $3::text) as audit_id"
_SCHEDULE = (
    "select public.intake_pool_schedule($1::text, $2::timestamptz, $3::timestamptz, $4::text,"
    " $5::text) as audit_id"
)
_STOCK = (
    "select public.intake_pool_stock($1::text, $2::int, $3::text, $4::text, $5::uuid[]) as count"
)
_SHOW = (
    "select msg_id, message::text, headers::text, audit_id"
    " from public.intake_dlq_show($1::bigint[], $2::text, $3::text)"
)
_STORY = "select public.intake_story($1::uuid, $2::boolean)::text as story"
_PROVE = "select invariant, subject, detail from public.intake_prove()"
_SOLD = (
    "select resource_id, pool_id, user_id, reservation_id"
    " from public.intake_prove_sold($1::uuid, $2::int)"
)
_TICKETS = (
    "select invariant, subject, detail"
    " from public.intake_prove_tickets($1::uuid[], $2::text[], $3::uuid[])"
)


async def pools(conn: Connection) -> list[PoolStats]:
    """Every pool with its policy and counts; counts all slots, so not for every request."""
    return [PoolStats(*row.values()) for row in await call(conn, _POOLS)]


async def set_pool(
    conn: Connection,
    pool: str,
    settings: Mapping[str, object],
    *,
    reason: str,
    operator: str | None = None,
) -> UUID:
    """Create or change a pool's settings by name; returns the audit id."""
    rows = await call(conn, _SET, pool, json.dumps(settings, default=str), reason, operator)
    return _audit_id(rows)


async def open_pool(
    conn: Connection, pool: str, *, reason: str, operator: str | None = None
) -> UUID:
    """Sell from now on; returns the audit id."""
    return _audit_id(await call(conn, _OPEN, pool, reason, operator))


async def close_pool(
    conn: Connection, pool: str, *, reason: str, operator: str | None = None
) -> UUID:
    """Sell no more; what is reserved is still confirmed. Returns the audit id."""
    return _audit_id(await call(conn, _CLOSE, pool, reason, operator))


async def schedule_pool(
    conn: Connection,
    pool: str,
    *,
    opens_at: datetime | None,
    closes_at: datetime | None,
    reason: str,
    operator: str | None = None,
) -> UUID:
    """Sell between two times; returns the audit id."""
    return _audit_id(await call(conn, _SCHEDULE, pool, opens_at, closes_at, reason, operator))


async def stock_pool(
    conn: Connection,
    pool: str,
    *,
    count: int | None = None,
    ids: Sequence[UUID] | None = None,
    reason: str,
    operator: str | None = None,
) -> int:
    """Put new slots on offer, `count` of them or with the given ids; returns how many."""
    given = None if ids is None else list(ids)
    rows = await call(conn, _STOCK, pool, count, reason, operator, given)
    return int(rows[0]["count"])


async def seed_demo(conn: Connection, pool: str, count: int) -> int:
    """The demo pool, if it is not there yet; returns how many slots were added."""
    rows = await call(conn, "select public.intake_seed_demo($1, $2) as count", pool, count)
    return int(rows[0]["count"])


async def show_dead(
    conn: Connection, msg_ids: Sequence[int], *, reason: str, operator: str | None = None
) -> Rows:
    """Dead letters with their payload; the look is audited."""
    return await call(conn, _SHOW, list(msg_ids), reason, operator)


async def story(
    conn: Connection, reservation_id: UUID, *, payload: bool = False
) -> dict[str, Any] | None:
    """Everything known about one reservation; None if nothing is."""
    text = (await call(conn, _STORY, reservation_id, payload))[0]["story"]
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found


async def prove(conn: Connection) -> list[Violation]:
    """What one database can tell of the invariants, in one snapshot (I4, I5, I6, I9)."""
    return [Violation(*row.values()) for row in await call(conn, _PROVE)]


async def sold(conn: Connection, after: UUID | None, limit: int = 10_000) -> list[SoldSlot]:
    """A page of sold slots, by id; read before the ledger is asked (I2)."""
    return [SoldSlot(*row.values()) for row in await call(conn, _SOLD, after, limit)]


async def prove_tickets(
    conn: Connection,
    resources: Sequence[UUID],
    *,
    users: Sequence[str],
    reservations: Sequence[UUID | None],
) -> list[Violation]:
    """Tickets that contradict the engine (I1, I3); read in the ledger before this is asked."""
    rows = await call(conn, _TICKETS, list(resources), list(users), list(reservations))
    return [Violation(*row.values()) for row in rows]


def _audit_id(rows: Rows) -> UUID:
    found: UUID = rows[0]["audit_id"]
    return found
