"""What operators do to the outbox and look at there, one typed call per SQL function or view."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.kernel.database import call
from penstock.kernel.queue import Connection

PLAN_MAX = 100_000


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """An ordering key that does not move, and the event at its head."""

    ordering_key: str
    tenant_id: UUID | None
    route: str | None
    head_id: UUID
    topic: str
    state: str
    error_code: str | None
    attempts: int
    next_attempt_at: datetime | None
    dead_at: datetime | None
    behind: int


@dataclass(frozen=True, slots=True)
class Key:
    """Which line is meant: tenants and routes have lines of their own."""

    name: str
    tenant: UUID | None = None
    route: str | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Which archived events to send once more, and where to."""

    destination: str
    since: datetime | None
    until: datetime | None = None
    topic: str | None = None
    ids: tuple[UUID, ...] | None = None
    missing: bool = False

    def arguments(self) -> tuple[object, ...]:
        """The values of the plan, in order."""
        ids = None if self.ids is None else list(self.ids)
        return self.destination, self.since, self.until, self.topic, ids, self.missing


@dataclass(frozen=True, slots=True)
class ResendPart:
    """Events of one topic: the route they take, or None where they are not sent."""

    topic: str
    route: str | None
    events: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class ResendStep:
    """One step: how many were looked at and sent, how far it is, and what waits to be delivered."""

    seen: int
    sent: int
    at: datetime
    ended: bool
    waiting: int


@dataclass(frozen=True, slots=True)
class ResendState:
    """How far a resend has come."""

    id: UUID
    destination: str
    topic: str | None
    since_at: datetime
    until_at: datetime
    position_at: datetime
    seen: int
    sent: int
    ended_at: datetime | None
    audit_id: UUID


@dataclass(frozen=True, slots=True)
class AlertState:
    """Whether anybody hears of dead letters: how many are in no alert, how many alerts are dead."""

    unsent: int
    dead: int


_ALERTS = """
select (select coalesce(sum(a.unsent), 0) from public.outbox_alerts a)::bigint as unsent,
       (select count(*) from app.outbox_dead d where d.topic = 'penstock.alert') as dead
"""
_BLOCKED = """
select ordering_key, tenant_id, route, head_id, topic, state, error_code, attempts, next_attempt_at,
       dead_at, behind
from app.outbox_blocked_keys
where ($1::text is null or ordering_key = $1)
order by behind desc, ordering_key
limit $2
"""
_RESENDS = """
select id, destination, topic, since_at, until_at, position_at, seen, sent, ended_at, audit_id
from public.outbox_resends
where ($1::uuid is null or id = $1)
order by created_at desc
limit 100
"""


async def blocked_keys(conn: Connection, key: str | None, *, limit: int) -> list[BlockedKey]:
    """Ordering keys whose head is dead, held or waits for another attempt; the longest first."""
    return [BlockedKey(**dict(row)) for row in await call(conn, _BLOCKED, key, limit)]


async def park(conn: Connection, key: Key, *, reason: str, operator: str) -> dict[UUID, UUID]:
    """Set the head of a key aside as a dead letter; returns its audit id by its own."""
    query = "select id, audit_id from app.outbox_park(array[$1::text], $2, $3, $4::uuid, $5)"
    return await _heads(conn, query, key, reason=reason, operator=operator)


async def skip(conn: Connection, key: Key, *, reason: str, operator: str) -> dict[UUID, UUID]:
    """Give the head of a key up for good; returns its audit id by its own."""
    query = "select id, audit_id from app.outbox_skip(array[$1::text], $2, $3, $4::uuid, $5)"
    return await _heads(conn, query, key, reason=reason, operator=operator)


async def plan_resend(conn: Connection, wanted: Resend) -> list[ResendPart]:
    """What a resend would send, counted up to PLAN_MAX events."""
    query = (
        "select topic, route, events, oldest, newest"
        " from app.outbox_resend_plan($1, $2, $3, $4, $5::uuid[], $6, $7)"
    )
    rows = await call(conn, query, *wanted.arguments(), PLAN_MAX)
    return [ResendPart(**dict(row)) for row in rows]


async def begin_resend(conn: Connection, wanted: Resend, *, reason: str, operator: str) -> UUID:
    """Write a resend down, audited; returns its id. Nothing is sent yet."""
    destination, since, until, *rest = wanted.arguments()
    query = "select app.outbox_resend($1, $2, $3, $4, $5, $6::uuid[], $7, $8) as id"
    rows = await call(conn, query, destination, since, until, reason, *rest, operator)
    return UUID(str(rows[0]["id"]))


async def step_resend(conn: Connection, resend: UUID, limit: int) -> ResendStep:
    """Send the next events of a resend; safe to repeat, also after its end."""
    query = "select seen, sent, at, ended, waiting from app.outbox_resend_step($1, $2)"
    rows = await call(conn, query, resend, limit)
    return ResendStep(**dict(rows[0]))


async def resends(conn: Connection, resend: UUID | None = None) -> Sequence[ResendState]:
    """One resend, or the latest."""
    return [ResendState(**dict(row)) for row in await call(conn, _RESENDS, resend)]


async def alert_state(conn: Connection) -> AlertState:
    """What has not been told to anybody."""
    return AlertState(**dict((await call(conn, _ALERTS))[0]))


async def _heads(
    conn: Connection, query: str, key: Key, *, reason: str, operator: str
) -> dict[UUID, UUID]:
    rows = await call(conn, query, key.name, reason, operator, key.tenant, key.route)
    return {UUID(str(row["id"])): UUID(str(row["audit_id"])) for row in rows}
