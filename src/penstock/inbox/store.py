"""One call per SQL function of the inbox. Nothing here decides anything.

Calls that run on the user's connection pass text and cast it, so that no codec of theirs matters.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.inbox.model import (
    Arrival,
    Counter,
    DeadEvent,
    DeadQuery,
    Route,
    RouteRow,
    SharedBody,
    Source,
    StoredEvent,
    Taken,
)
from penstock.kernel.connections import SyncConnection
from penstock.kernel.database import call, purge
from penstock.kernel.queue import Connection

Rows = Sequence[Mapping[str, Any]]

_RECEIVE = (
    "select result from webhook.receive($1::uuid[], $2::uuid[], $3::text[], $4::text[],"
    " $5::bytea[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::text[], $11::uuid[],"
    " $12::uuid[], $13::bytea[]) order by ord"
)
_SOURCES = (
    "select id, source, provider, secret_refs, tolerance_s, max_body, max_backlog,"
    " timestamp_signed, public_url, unhandled, options::text, enabled, rotated_at"
    " from webhook.sources()"
)
# The JSON of a whole body need not come twice: the bytes are the payload.
_CLAIM = (
    "select seq, id, event_id, source, event_type, route, raw_body,"
    " case when delivery_id is null and content_type like 'application/json%' then null"
    " else payload::text end as payload, headers::text, received_at, attempts, max_attempts,"
    " lease_token, lease_epoch, lease_expires_at, lease_s"
    " from webhook.inbox_claim($1::integer, $2::uuid, $3::uuid, $4::text[], $5::text[],"
    " $6::boolean[])"
)
_FINISH = "select id from webhook.inbox_finish($1::uuid[], $2::uuid[])"
_FINISH_STRICT = (
    "select webhook.inbox_finish_strict($1::text[]::uuid[], $2::text[]::uuid[])::text as finished"
)
_MARK_FAILED = (
    "select id from webhook.inbox_mark_failed($1::uuid[], $2::uuid[], $3::text[],"
    " $4::double precision[], $5::text[], $6::text[])"
)
_EXTEND = (
    "select array(select id from webhook.inbox_extend($1::uuid[], $2::uuid[])) as lost,"
    " (select lease_s from penstock.policy('inbox')) as lease_s"
)
_BEGIN_EFFECT = (
    "select state, idempotency_key, external_ref"
    " from webhook.begin_effect($1::uuid, $2::uuid, $3::text, $4::text)"
)
_END_EFFECT = "select webhook.end_effect($1::uuid, $2::text, $3::text, $4::text) as ended"
_PUT_SOURCE = (
    "select id, audit_id from webhook.put_source($1::text, $2::text, $3::text[], $4::text::jsonb,"
    " $5::text, $6::text)"
)
_ROTATE = "select webhook.rotate_source($1::text, $2::text, $3::text, $4::text) as audit_id"
_PUT_ROUTE = (
    "select webhook.put_route($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text)"
    " as audit_id"
)
_MAY_ROUTE = (
    "select coalesce(bool_or(has_schema_privilege(n.oid, 'usage')"
    " and has_function_privilege(p.oid, 'execute')), false) as may"
    " from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
    " where n.nspname = 'webhook' and p.proname = 'routes'"
)
_DEAD = (
    "select id, webhook_id, source, event_id, event_type, attempts, error_code, error, received_at,"
    " dead_at from webhook.replay_filter($1::text, $2::uuid, $3::text, $4::text, $5::text,"
    " $6::timestamptz, $7::timestamptz, $8::integer)"
)
_REPLAY = "select id, audit_id from webhook.inbox_replay($1::uuid[], $2::text, $3::text, $4::text)"
_STORED = (
    "select id, source, provider, raw_body, signature, headers::text, content_type, received_at"
    " from webhook.stored_event($1::uuid[], $2::text, $3::text)"
)
_METRICS = (
    "select metric, webhook_id, source, provider, label, total from webhook.metrics"
    " order by metric, source, label"
)


async def receive_many(
    conn: Connection, arrivals: Sequence[Arrival], shared: Sequence[SharedBody] = ()
) -> list[Taken]:
    """Store verified events in one statement; one answer for each, in order."""
    rows = await call(
        conn,
        _RECEIVE,
        [a.id for a in arrivals],
        [a.webhook_id for a in arrivals],
        [storable(a.event_id) for a in arrivals],
        [storable(a.event_type) for a in arrivals],
        [a.raw_body for a in arrivals],
        [_text_or_none(a.payload) for a in arrivals],
        [None if a.signature is None else storable(a.signature) for a in arrivals],
        [_text_or_none(a.headers) for a in arrivals],
        [a.body_sha256 for a in arrivals],
        [storable(a.content_type) for a in arrivals],
        [a.delivery_id for a in arrivals],
        [body.delivery_id for body in shared],
        [body.raw_body for body in shared],
    )
    return [row["result"] for row in rows]


def storable(text: str, most: int = 2000) -> str:
    """Text as Postgres takes it; what it cannot hold is left out or replaced."""
    if text.isascii() and "\0" not in text:
        return text[:most]
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:most]


def _text_or_none(text: str | None) -> str | None:
    """JSON text, or None where the wire could not even carry it."""
    if text is None or "\0" in text:
        return None
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


async def sources(conn: Connection) -> list[Source]:
    """Every configured source, enabled or not."""
    return [
        Source(
            **{
                **row,
                "secret_refs": tuple(row["secret_refs"]),
                "options": json.loads(row["options"]),
            }
        )
        for row in await call(conn, _SOURCES)
    ]


async def policy(conn: Connection) -> Mapping[str, Any]:
    """The queue's row of numbers."""
    rows: Rows = await call(conn, "select * from penstock.policy('inbox')")
    return rows[0]


async def claim(conn: Connection, *args: object) -> Rows:
    """Lease events: limit, token, owner, sources, LIKE patterns, which of them are full."""
    rows: Rows = await call(conn, _CLAIM, *args)
    return rows


async def finish(conn: Connection, ids: Sequence[UUID], tokens: Sequence[UUID]) -> list[UUID]:
    """Finish handled events; returns the refused ones."""
    return [row["id"] for row in await call(conn, _FINISH, ids, tokens)]


async def finish_strict(conn: Connection, ids: Sequence[UUID], tokens: Sequence[UUID]) -> None:
    """Finish events in the caller's transaction; raises LeaseLost."""
    await call(conn, _FINISH_STRICT, [str(i) for i in ids], [str(t) for t in tokens])


def finish_strict_sync(conn: SyncConnection, ids: Sequence[UUID], tokens: Sequence[UUID]) -> None:
    """The same on a blocking connection."""
    conn.fetch(_FINISH_STRICT, [str(i) for i in ids], [str(t) for t in tokens])


async def mark_failed(conn: Connection, *args: object) -> list[UUID]:
    """End attempts that did not succeed; returns the refused ones."""
    return [row["id"] for row in await call(conn, _MARK_FAILED, *args)]


async def extend(
    conn: Connection, ids: Sequence[UUID], tokens: Sequence[UUID]
) -> tuple[list[UUID], float]:
    """Prolong leases; returns the lost events and the seconds gained for the others."""
    rows = await call(conn, _EXTEND, ids, tokens)
    return list(rows[0]["lost"]), float(rows[0]["lease_s"])


async def release(conn: Connection, ids: Sequence[UUID], tokens: Sequence[UUID]) -> int:
    """Give events back that have not started; returns how many."""
    query = "select webhook.inbox_release($1::uuid[], $2::uuid[]) as count"
    rows = await call(conn, query, ids, tokens)
    return int(rows[0]["count"])


async def ready(conn: Connection) -> bool:
    """Whether a claim might find something."""
    rows = await call(conn, "select webhook.inbox_ready() as ready")
    return bool(rows[0]["ready"])


async def tend(conn: Connection) -> Mapping[str, Any]:
    """Housekeeping, unless somebody has just done it."""
    rows: Rows = await call(conn, "select reaped, due, swept from webhook.inbox_tend(false)")
    return rows[0]


async def keep(conn: Connection) -> None:
    """Archive what is done, forget what may be forgotten, fold the counters."""
    await call(conn, "select archived, forgotten from webhook.inbox_keep()")


async def partitions(conn: Connection) -> None:
    """Make the partitions of the days ahead and remove what is past retention."""
    await purge(conn, "select webhook.inbox_partitions() as count")


async def begin_effect(
    conn: Connection, event: UUID, token: UUID, *, name: str, key: str
) -> Mapping[str, Any]:
    """Record that an outside call is about to be made; raises LeaseLost."""
    rows: Rows = await call(conn, _BEGIN_EFFECT, event, token, name, key)
    return rows[0]


async def end_effect(
    conn: Connection, event: UUID, *, name: str, key: str, external_ref: str | None
) -> bool:
    """Record that an outside call was answered."""
    rows = await call(conn, _END_EFFECT, event, name, key, external_ref)
    return bool(rows[0]["ended"])


async def put_source(conn: Connection, *args: object) -> tuple[UUID, UUID]:
    """Add or replace: name, provider, secret references, settings, reason, operator."""
    rows = await call(conn, _PUT_SOURCE, *args)
    return rows[0]["id"], rows[0]["audit_id"]


async def rotate_source(conn: Connection, *args: object) -> UUID:
    """Put a new secret first, or keep only the first: name, reference, reason, operator."""
    rows = await call(conn, _ROTATE, *args)
    audit_id: UUID = rows[0]["audit_id"]
    return audit_id


async def put_route(conn: Connection, *args: object) -> UUID:
    """Add or replace: source, pattern, kind, target, secret reference, reason, operator."""
    rows = await call(conn, _PUT_ROUTE, *args)
    audit_id: UUID = rows[0]["audit_id"]
    return audit_id


async def may_route(conn: Connection) -> bool:
    """Whether there is an inbox here that this login may work on; asking breaks nothing."""
    return bool((await call(conn, _MAY_ROUTE))[0]["may"])


async def routes(conn: Connection) -> list[Route]:
    """The routes in use."""
    query = "select source, pattern, kind, target, secret_ref from webhook.routes()"
    return [Route(**row) for row in await call(conn, query)]


async def all_routes(conn: Connection) -> list[RouteRow]:
    """Every route, in use or not."""
    query = (
        "select source, pattern, kind, target, secret_ref, enabled from public.webhook_routes"
        " order by source, pattern"
    )
    return [RouteRow(**row) for row in await call(conn, query)]


async def remove_route(conn: Connection, *args: object) -> UUID:
    """Take a route away: source, pattern, reason, operator."""
    query = "select webhook.remove_route($1::text, $2::text, $3::text, $4::text) as audit_id"
    audit_id: UUID = (await call(conn, query, *args))[0]["audit_id"]
    return audit_id


async def call_route(conn: Connection, function: str, event: str) -> None:
    """Hand an event, as JSON text, to an allowed function, in the open transaction."""
    query = "select webhook.call_route($1::text, $2::text::jsonb)::text as called"
    await call(conn, query, function, event)


async def dead(conn: Connection, query: DeadQuery) -> list[DeadEvent]:
    """The dead letters that are meant, oldest first."""
    rows = await call(
        conn,
        _DEAD,
        query.source,
        query.webhook_id,
        query.event_id,
        query.event_type,
        query.error_code,
        query.after,
        query.before,
        query.limit,
    )
    return [DeadEvent(**row) for row in rows]


async def replay(conn: Connection, *args: object) -> list[tuple[UUID, UUID]]:
    """Give events a new cycle: ids, reason, operator, suffix for effect keys; with audit ids."""
    return [(row["id"], row["audit_id"]) for row in await call(conn, _REPLAY, *args)]


async def stored_events(
    conn: Connection,
    ids: Sequence[UUID],
    *,
    reason: str = "stored bytes are verified again",
    operator: str | None = None,
) -> list[StoredEvent]:
    """The bytes as they were received and what verifies them; reading them is audited."""
    return [
        StoredEvent(**{**row, "headers": json.loads(row["headers"])})
        for row in await call(conn, _STORED, ids, reason, operator)
    ]


async def counters(conn: Connection) -> list[Counter]:
    """The counters as the database keeps them."""
    return [Counter(**row) for row in await call(conn, _METRICS)]
