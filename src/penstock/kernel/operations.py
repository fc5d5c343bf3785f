"""What operators do and look at, one typed call per SQL function or view. Knows no product.

Every change is one SQL function that writes its audit row in the same transaction.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.kernel.database import call
from penstock.kernel.errors import NotFound
from penstock.kernel.queue import Connection

REPLAY_MAX = 1000


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Depth and trouble of one queue."""

    queue: str
    ready: int
    scheduled: int
    leased: int
    expired: int
    dead: int
    held: int
    oldest_age_s: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """What claims leave alone, and why."""

    target: str
    reason: str
    paused_by: str
    paused_at: datetime
    until_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker that told of itself lately."""

    id: UUID
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    started_at: datetime
    silent_s: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An item that needs a person; never its payload."""

    queue: str
    id: UUID
    topic: str | None
    state: str
    error_code: str | None
    fingerprint: str | None
    error: str | None
    attempts: int
    created_at: datetime
    dead_at: datetime


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters are meant; None means any."""

    queue: str | None = None
    topic: str | None = None
    code: str | None = None
    fingerprint: str | None = None
    state: str | None = None
    ids: tuple[UUID, ...] | None = None
    since: datetime | None = None

    def arguments(self) -> tuple[object, ...]:
        """The values in the order of the statements below."""
        ids = None if self.ids is None else list(self.ids)
        return (
            self.queue,
            self.topic,
            self.code,
            self.fingerprint,
            self.state,
            ids,
            self.since,
        )


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who did what to which rows, and why."""

    id: UUID
    at: datetime
    actor: str
    operator: str | None
    operation: str
    table_name: str
    row_data: Mapping[str, Any]
    reason: str


_STATS = """
select queue, ready, scheduled, leased, expired, dead, held, oldest_age_s
from penstock.queue_stats order by queue
"""
_PAUSES = """
select target, reason, paused_by, paused_at, until_at from penstock.pause
where until_at is null or until_at > penstock.clock() order by target
"""
_WORKERS = """
select id, host, pid, version, queues, started_at,
       extract(epoch from penstock.clock() - heartbeat_at)::float8 as silent_s
from penstock.worker order by started_at
"""
_DEAD = """
select queue, id, topic, state, error_code, fingerprint, error, attempts, created_at, dead_at
from penstock.dead_letters
where ($1::text is null or queue = $1)
  and ($2::text is null or topic = $2)
  and ($3::text is null or error_code = $3)
  and ($4::text is null or fingerprint = $4)
  and ($5::text is null or state = $5)
  and ($6::uuid[] is null or id = any ($6))
  and ($7::timestamptz is null or dead_at >= $7)
order by dead_at, id
limit $8
"""
_AUDIT = """
select id, at, actor, operator, operation, table_name, row_data::text as row_data, reason
from audit.audit_logs
where ($1::text is null or operation = $1)
  and ($2::timestamptz is null or at >= $2)
  and ($3::uuid is null or id < $3)
order by id desc
limit $4
"""


async def queue_stats(conn: Connection) -> list[QueueStats]:
    """Depth and trouble of every registered queue."""
    return [QueueStats(**dict(row)) for row in await call(conn, _STATS)]


async def pauses(conn: Connection) -> list[Pause]:
    """What is paused now."""
    return [Pause(**dict(row)) for row in await call(conn, _PAUSES)]


async def workers(conn: Connection) -> list[WorkerSeen]:
    """Workers seen within the last day."""
    rows = await call(conn, _WORKERS)
    return [WorkerSeen(**{**dict(row), "queues": tuple(row["queues"])}) for row in rows]


async def queue_names(conn: Connection) -> list[str]:
    """The registered queues."""
    return [row["queue"] for row in await call(conn, "select queue from penstock.queue order by 1")]


async def pause(
    conn: Connection, target: str, *, reason: str, lasting: timedelta | None, operator: str
) -> UUID:
    """Stop claims on a target; returns the audit id. Repeating it replaces reason and end."""
    rows = await call(
        conn,
        "select penstock.pause_target($1, $2, $3, $4) as audit_id",
        target,
        reason,
        lasting,
        operator,
    )
    return _uuid(rows[0]["audit_id"])


async def resume(conn: Connection, target: str, *, reason: str, operator: str) -> UUID:
    """Lift a pause; raises NotFound when there is none."""
    rows = await call(
        conn, "select penstock.resume_target($1, $2, $3) as audit_id", target, reason, operator
    )
    return _uuid(rows[0]["audit_id"])


async def story(
    conn: Connection, item: UUID, *, payload_reason: str | None, operator: str
) -> dict[str, Any]:
    """Everything known of one item; with a reason also its payload, which is audited."""
    rows = await call(
        conn,
        "select penstock.story($1, $2, $3, $4)::text as story",
        item,
        payload_reason is not None,
        payload_reason,
        operator,
    )
    told = json.loads(rows[0]["story"])
    if not isinstance(told, dict):
        raise NotFound(f"there is no item {item}")
    if payload_reason is None:
        told.pop("payload", None)
    return told


async def dead_letters(conn: Connection, wanted: DeadFilter, *, limit: int) -> list[DeadLetter]:
    """Dead and held items of all queues, oldest first."""
    rows = await call(conn, _DEAD, *wanted.arguments(), limit)
    return [DeadLetter(**dict(row)) for row in rows]


async def replay(
    conn: Connection, queue: str, ids: Sequence[UUID], *, reason: str, operator: str
) -> dict[UUID, UUID]:
    """Give dead or held items a new cycle; returns the audit id of each that was replayed."""
    rows = await call(
        conn,
        "select id, audit_id from penstock.replay($1, $2, $3, $4)",
        queue,
        list(ids),
        reason,
        operator,
    )
    return {_uuid(row["id"]): _uuid(row["audit_id"]) for row in rows}


async def discard(
    conn: Connection, queue: str, ids: Sequence[UUID], *, reason: str, operator: str
) -> dict[UUID, UUID]:
    """Give dead or held items up; returns the audit id of each that was discarded."""
    rows = await call(
        conn,
        "select id, audit_id from penstock.discard($1, $2, $3, $4)",
        queue,
        list(ids),
        reason,
        operator,
    )
    return {_uuid(row["id"]): _uuid(row["audit_id"]) for row in rows}


async def audit_rows(
    conn: Connection,
    *,
    operation: str | None = None,
    since: datetime | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[AuditRow]:
    """Audit rows, newest first; `before` continues after the last one of the page before."""
    rows = await call(conn, _AUDIT, operation, since, before, limit)
    return [AuditRow(**{**dict(row), "row_data": json.loads(row["row_data"])}) for row in rows]


def _uuid(value: object) -> UUID:
    """Our own UUID type, not the driver's subclass of it."""
    return UUID(str(value))
