"""One call per SQL function of the outbox. Nothing here decides anything.

Calls that run on the user's connection pass text and cast it, so that no codec of theirs matters.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.kernel.connections import SyncConnection
from penstock.kernel.database import call, purge
from penstock.kernel.queue import Connection

Rows = Sequence[Mapping[str, Any]]

_PUBLISH = (
    "select app.outbox_publish($1::text::uuid, $2::text, $3::text::jsonb, $4::text::jsonb,"
    " $5::text::uuid, $6::text::timestamptz, $7::text, $8::text)::text as id"
)
_PUBLISH_MANY = (
    "select app.outbox_publish_many($1::text, $2::text::jsonb, $3::text::jsonb, $4::text::uuid,"
    " $5::text::timestamptz, $6::text) as count"
)
_FINISH_STRICT = (
    "select app.outbox_finish_strict($1::text[]::bigint[], $2::text[]::uuid[])::text as finished"
)
# Times as numbers: the driver takes six times as long over a time. What a claim for destinations
# returns comes by rows, the rest as one array for each column: no record is made for each event.
_CLAIMED_COLUMNS = {
    "seq": "seq",
    "id": "id",
    "topic": "topic",
    "payload": "payload::text",
    "headers": "headers::text",
    "created_s": "date_part('epoch', created_at)",
    "attempts": "attempts",
    "lease_epoch": "lease_epoch",
    "max_attempts": "max_attempts",
    "ordering_key": "ordering_key",
    "tenant_id": "tenant_id",
    "event_id": "event_id",
    "event_topic": "event_topic",
}
CLAIMED_COLUMNS = len(_CLAIMED_COLUMNS)
CLAIMED = (
    f"select {', '.join(f'{value} as {name}' for name, value in _CLAIMED_COLUMNS.items())},"
    " date_part('epoch', lease_expires_at) as expires_s, lease_s"
)
_CLAIMED_TOGETHER = (
    f"select {', '.join(f'array_agg({value}) as {n}' for n, value in _CLAIMED_COLUMNS.items())},"
    " date_part('epoch', min(lease_expires_at)) as expires_s, max(lease_s) as lease_s"
)
_CLAIM = (
    _CLAIMED_TOGETHER
    + ", false as joint"
    + " from app.outbox_claim($1::integer, $2::uuid, null, $3::uuid, $4::text[], $5::text[])"
)
_CLAIM_JOINT = (
    _CLAIMED_TOGETHER
    + ", bool_or(joint) as joint"
    + " from app.outbox_claim_joint($1::integer, $2::uuid, $3::uuid, $4::text[], $5::text[])"
)
_FINISH = "select seq from app.outbox_finish($1::bigint[], $2::uuid[], $3::uuid[])"
_FINISH_JOINT = "select app.outbox_finish_joint($1::uuid[], $2::bigint[], $3::bigint[]) as finished"
_MARK_FAILED = (
    "select seq from app.outbox_mark_failed($1::bigint[], $2::uuid[], $3::uuid[], $4::text[],"
    " $5::double precision[], $6::text[], $7::text[])"
)
_EXTEND = (
    "select array(select seq from app.outbox_extend($1::bigint[], $2::uuid[])) as lost,"
    " (select lease_s from penstock.policy('outbox')) as lease_s"
)
_PROPOSE_SCHEMA = (
    "select app.outbox_propose_schema($1::text, $2::text::integer, $3::text::jsonb)::text as kept"
)
_REPLACE_SCHEMA = (
    "select app.outbox_put_schema($1::text, $2::text::integer, $3::text::jsonb, true) is null"
)
_MAY_PUT_SCHEMA = """
select coalesce(has_schema_privilege(p.pronamespace, 'usage')
                and has_function_privilege(p.oid, 'execute'), false) as may
from (select to_regprocedure('app.outbox_put_schema(text,integer,jsonb,boolean)') as oid) f
left join pg_proc p on p.oid = f.oid
"""
_RELEASE = "select app.outbox_release($1::bigint[], $2::uuid[]) as count"


async def publish(conn: Connection, args: Sequence[str | None]) -> UUID:
    """Publish one event: id, topic, payload, headers, tenant, time of delivery, keys."""
    rows = await call(conn, _PUBLISH, *args)
    return UUID(rows[0]["id"])


def publish_sync(conn: SyncConnection, args: Sequence[str | None]) -> UUID:
    """Publish one event on a blocking connection."""
    return UUID(conn.fetch(_PUBLISH, *args)[0]["id"])


async def publish_many(conn: Connection, args: Sequence[str | None]) -> int:
    """Publish many events: topic, JSON array of ids and payloads, headers, tenant, time, key."""
    rows = await call(conn, _PUBLISH_MANY, *args)
    return int(rows[0]["count"])


def publish_many_sync(conn: SyncConnection, args: Sequence[str | None]) -> int:
    """The same on a blocking connection."""
    return int(conn.fetch(_PUBLISH_MANY, *args)[0]["count"])


async def finish_strict(conn: Connection, seqs: Sequence[int], tokens: Sequence[UUID]) -> None:
    """Finish events in the caller's transaction; raises LeaseLost."""
    await call(conn, _FINISH_STRICT, [str(s) for s in seqs], [str(t) for t in tokens])


def finish_strict_sync(conn: SyncConnection, seqs: Sequence[int], tokens: Sequence[UUID]) -> None:
    """The same on a blocking connection."""
    conn.fetch(_FINISH_STRICT, [str(s) for s in seqs], [str(t) for t in tokens])


async def policy(conn: Connection) -> Mapping[str, Any]:
    """The queue's row of numbers."""
    rows = await call(conn, "select * from penstock.policy('outbox')")
    return rows[0]


async def claim(conn: Connection, *args: object, joint: bool) -> Mapping[str, Any] | None:
    """Lease events: limit, token, owner, topics (null: all), topics to leave alone."""
    rows = await call(conn, _CLAIM_JOINT if joint else _CLAIM, *args)
    return rows[0] if rows[0]["lease_s"] is not None else None


async def finish(conn: Connection, *args: object) -> Rows:
    """Finish delivered events; returns the refused ones."""
    return await call(conn, _FINISH, *args)


async def finish_joint(conn: Connection, *args: object) -> int:
    """Finish delivered events of joint leases by runs: tokens, from, up to; returns how many."""
    rows = await call(conn, _FINISH_JOINT, *args)
    return int(rows[0]["finished"])


async def mark_failed(conn: Connection, *args: object) -> Rows:
    """End attempts that did not deliver; returns the refused ones."""
    return await call(conn, _MARK_FAILED, *args)


async def register(conn: Connection, *args: object) -> None:
    """Enter handlers as routes: their routes, topics and destinations."""
    await call(conn, "select app.outbox_register($1::text[], $2::text[], $3::text[])", *args)


async def replace_schema(conn: Connection, *args: str) -> None:
    """Keep another schema of a topic's version, as far as this login may."""
    await call(conn, _REPLACE_SCHEMA, *args)


async def may_put_schema(conn: Connection) -> bool:
    """Whether there is an outbox here that this login may publish to; asking breaks nothing."""
    return bool((await call(conn, _MAY_PUT_SCHEMA))[0]["may"])


async def propose_schema(conn: Connection, *args: str) -> str | None:
    """The kept schema of a topic's version; None: not known yet, ask again."""
    kept: str | None = (await call(conn, _PROPOSE_SCHEMA, *args))[0]["kept"]
    return kept


def propose_schema_sync(conn: SyncConnection, *args: str) -> str | None:
    """The same on a blocking connection."""
    kept: str | None = conn.fetch(_PROPOSE_SCHEMA, *args)[0]["kept"]
    return kept


async def routing(conn: Connection) -> tuple[set[str], bool]:
    """The routes whose topics are claimed directly, and whether others have to be expanded."""
    rows = await call(conn, "select plain_routes, to_expand from app.outbox_routing()")
    return set(rows[0]["plain_routes"]), bool(rows[0]["to_expand"])


async def expand(conn: Connection, limit: int) -> int:
    """Give ready events their routes; returns how many were looked at."""
    rows = await call(conn, "select app.outbox_expand($1::integer) as count", limit)
    return int(rows[0]["count"])


async def extend(conn: Connection, *args: object) -> tuple[list[int], float]:
    """Prolong leases; returns the lost events and the seconds gained for the others."""
    rows = await call(conn, _EXTEND, *args)
    return list(rows[0]["lost"]), float(rows[0]["lease_s"])


async def release(conn: Connection, *args: object) -> int:
    """Give events back that have not started; returns how many."""
    rows = await call(conn, _RELEASE, *args)
    return int(rows[0]["count"])


async def ready(conn: Connection) -> bool:
    """Whether a claim might find something."""
    rows = await call(conn, "select app.outbox_ready() as ready")
    return bool(rows[0]["ready"])


async def hint(conn: Connection, table: str, row: UUID) -> bool | None:
    """Whether a row of an outbox table waits to be claimed; None if there is no such table."""
    rows = await call(conn, "select app.outbox_hint($1::text, $2::uuid) as waiting", table, row)
    waiting: bool | None = rows[0]["waiting"]
    return waiting


async def tend(conn: Connection) -> Mapping[str, Any]:
    """Housekeeping, unless somebody has just done it."""
    rows = await call(conn, "select reaped, due, swept from app.outbox_tend(false)")
    return rows[0]


async def call_function(conn: Connection, function: str, events: bytes) -> None:
    """Hand events, a JSON array of them, to an allowed function, in the open transaction."""
    query = "select app.outbox_call_function($1::text, $2::text::jsonb) as count"
    await call(conn, query, function, events.decode())


async def partitions(conn: Connection) -> None:
    """Make the partitions of the days ahead and remove what is past retention."""
    await purge(conn, "select app.outbox_partitions() as count")


async def check_keys(conn: Connection) -> None:
    """Look for ordering keys with waiting events and no head; there should be none."""
    await call(conn, "select app.outbox_check_keys()")


async def purge_dedupe(conn: Connection) -> None:
    """Forget dedupe keys that are past their time, batch by batch until none is left."""
    await purge(conn, "select app.outbox_purge_dedupe() as count")


async def purge_relays(conn: Connection) -> None:
    """Delete rows of relay tables that were sent long enough ago, batch by batch."""
    await purge(conn, "select app.outbox_purge_relays() as count")


async def remove_step(conn: Connection, route: str | None = None) -> Mapping[str, Any]:
    """Cancel some of what a removed route (None: any) leaves: `cancelled`, `held`, `ended`."""
    query = "select cancelled, held, ended from app.outbox_remove_step($1::text)"
    return (await call(conn, query, route))[0]


async def end_removals(conn: Connection) -> None:
    """Cancel what removed routes leave, for as long as there is something that nobody holds."""
    while not (step := await remove_step(conn))["ended"]:
        if step["held"] and not step["cancelled"]:
            return


async def tend_alerts(conn: Connection) -> None:
    """Send alerts that waited for a route, and try dead ones again."""
    await call(conn, "select app.outbox_tend_alerts()")


async def cancel(conn: Connection, event: UUID, reason: str) -> bool:
    """Withdraw an event that is not in flight."""
    query = "select app.outbox_cancel($1::text::uuid, $2::text) as cancelled"
    rows = await call(conn, query, str(event), reason)
    return bool(rows[0]["cancelled"])


async def story(conn: Connection, event: UUID) -> str:
    """Everything known about one event but its payload, as JSON text; raises NotFound."""
    query = "select penstock.story($1::text::uuid)::text as story"
    rows = await call(conn, query, str(event))
    found: str = rows[0]["story"]
    return found
