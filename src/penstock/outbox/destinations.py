"""One call per SQL function about destinations and routes. Nothing here decides anything."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.kernel.database import call
from penstock.kernel.queue import Connection
from penstock.outbox.store import CLAIMED

Rows = Sequence[Mapping[str, Any]]

_MAY_SERVE = """
select exists (
    select from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'app' and p.proname = 'outbox_serving'
      and has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')) as may
"""
_SERVING = (
    "select name, kind, config::text, secret_refs, concurrency, rate_per_s, routes,"
    " version from app.outbox_serving()"
)
_CLAIM_FOR = (
    CLAIMED + ", destination, watched, probe"
    " from app.outbox_claim_for($1::text[], $2::integer[], $3::uuid, $4::uuid)"
)
_WEIGH = (
    "select name, breaker, moved from app.outbox_weigh($1::text[], $2::integer[], $3::integer[],"
    " $4::text[])"
)
_STATS = """
select name, kind, enabled, concurrency, rate_per_s, breaker, breaker_opened_at, breaker_until,
       breaker_failures, last_error, last_error_at, fault, paused, ready, waiting, leased, dead
from app.outbox_destination_stats order by name
"""
_SETTINGS = """
select name, kind, config::text, secret_refs, concurrency, rate_per_s, enabled, breaker_after,
       breaker_pause_s
from public.outbox_destinations where name = $1 and kind <> 'python'
"""
_ROUTES = """
select route, topic, coalesce(filter_text, filter::text) as filter, destination, enabled
from public.outbox_routes order by route
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A destination as configured; secrets only as references."""

    name: str
    kind: str
    config: Mapping[str, Any]
    secret_refs: tuple[str, ...]
    concurrency: int
    rate_per_s: float | None
    routes: tuple[str, ...] = ()
    version: int = 1


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker after a report: closed, open or half_open, and whether the report moved it."""

    breaker: str
    moved: bool


@dataclass(frozen=True, slots=True)
class DestinationStats:
    """The state of a destination, and how many deliveries are on their way to it."""

    name: str
    kind: str
    enabled: bool
    concurrency: int
    rate_per_s: float | None
    breaker: str
    breaker_opened_at: datetime | None
    breaker_until: datetime | None
    breaker_failures: int
    last_error: str | None
    last_error_at: datetime | None
    fault: str | None
    paused: bool
    ready: int
    waiting: int
    leased: int
    dead: int


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route as configured."""

    route: str
    topic: str
    filter: str | None
    destination: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """The JSON Schema of a topic's payloads, in one version."""

    topic: str
    version: int
    schema: str


async def installed(conn: Connection) -> bool:
    """Whether this database has an outbox."""
    query = "select to_regclass('public.outbox_destinations') is not null as there"
    return bool((await call(conn, query))[0]["there"])


async def may_serve(conn: Connection) -> bool:
    """Whether there is an outbox here that this login may deliver from; asking breaks nothing."""
    return bool((await call(conn, _MAY_SERVE))[0]["may"])


async def schemas(conn: Connection) -> list[SchemaRow]:
    """The kept schemas, by topic and version."""
    query = "select topic, version, schema::text from public.outbox_schemas order by 1, 2"
    return [SchemaRow(**dict(row)) for row in await call(conn, query)]


async def serving(conn: Connection) -> list[Row]:
    """The destinations that workers deliver to."""
    return [_row(row) for row in await call(conn, _SERVING)]


async def claim_for(conn: Connection, *args: object) -> Rows:
    """Lease deliveries: destinations, how many for each, token, owner."""
    return await call(conn, _CLAIM_FOR, *args)


async def dead(conn: Connection, name: str) -> tuple[UUID, ...]:
    """The ids of dead and held deliveries to a destination."""
    query = "select id from app.outbox_dead_destinations where destination = $1"
    return tuple(UUID(str(row["id"])) for row in await call(conn, query, name))


async def balance(conn: Connection) -> int:
    """Keep few deliveries ready for each destination; returns how many were fetched back."""
    rows = await call(conn, "select app.outbox_balance() as count")
    return int(rows[0]["count"])


async def weigh(conn: Connection, *args: object) -> dict[str, Breaker]:
    """Tell successes and failures by destination; returns their breakers."""
    rows = await call(conn, _WEIGH, *args)
    return {row["name"]: Breaker(row["breaker"], row["moved"]) for row in rows}


async def gone(conn: Connection, name: str, why: str, *, version: int) -> bool:
    """Disable a destination that says it is gone; false when it was disabled or changed before."""
    query = "select app.outbox_gone($1, $2, $3) as audit_id"
    rows = await call(conn, query, name, why, version)
    return rows[0]["audit_id"] is not None


async def fault(conn: Connection, faults: Mapping[str, str | None]) -> None:
    """Say why destinations cannot be used here, or (None) that they can."""
    query = "select app.outbox_fault($1::text[], $2::text[])"
    await call(conn, query, list(faults), list(faults.values()))


async def stats(conn: Connection) -> list[DestinationStats]:
    """Every configured destination."""
    return [DestinationStats(**_numbers(row)) for row in await call(conn, _STATS)]


async def settings_of(conn: Connection, name: str) -> Mapping[str, Any] | None:
    """How a destination is configured."""
    rows = await call(conn, _SETTINGS, name)
    if not rows:
        return None
    found = _numbers(rows[0])
    return {**found, "config": json.loads(found["config"])}


async def put(
    conn: Connection,
    name: str,
    values: Mapping[str, Any],
    *,
    kind: str | None = None,
    reason: str,
    operator: str,
) -> UUID:
    """Configure a destination; fields that are not named stay. Returns the audit id."""
    query = "select app.outbox_put_destination($1, $2, $3::jsonb, $4, $5) as audit_id"
    rows = await call(conn, query, name, kind, json.dumps(dict(values)), reason, operator)
    return UUID(str(rows[0]["audit_id"]))


async def rotate(
    conn: Connection, name: str, reference: str | None, *, reason: str, operator: str
) -> UUID:
    """Put a new secret first, or (None) end all but the first. Returns the audit id."""
    query = "select app.outbox_rotate_destination($1, $2, $3, $4) as audit_id"
    rows = await call(conn, query, name, reference, reason, operator)
    return UUID(str(rows[0]["audit_id"]))


async def routes(conn: Connection) -> list[RouteRow]:
    """Every route, those of handlers in Python too."""
    return [RouteRow(**dict(row)) for row in await call(conn, _ROUTES)]


async def set_route(
    conn: Connection, route: str, values: Mapping[str, Any], *, reason: str, operator: str
) -> UUID:
    """Write a route; fields that are not named stay. Returns the audit id."""
    query = "select app.outbox_set_route($1, $2::jsonb, $3, $4) as audit_id"
    rows = await call(conn, query, route, json.dumps(dict(values)), reason, operator)
    return UUID(str(rows[0]["audit_id"]))


async def remove_route(conn: Connection, route: str, *, reason: str, operator: str) -> UUID:
    """Take a route away; `store.remove_step` cancels what waits on it. Returns the audit id."""
    query = "select app.outbox_remove_route($1, $2, $3) as audit_id"
    rows = await call(conn, query, route, reason, operator)
    return UUID(str(rows[0]["audit_id"]))


def _row(row: Mapping[str, Any]) -> Row:
    rate = row["rate_per_s"]
    return Row(
        row["name"],
        row["kind"],
        json.loads(row["config"]),
        tuple(row["secret_refs"]),
        row["concurrency"],
        None if rate is None else float(rate),
        tuple(row["routes"]),
        row["version"],
    )


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its rates as floats: numeric stays exact in the table, where it is reckoned."""
    found = dict(row)
    for name in ("rate_per_s", "breaker_pause_s"):
        if found.get(name) is not None:
            found[name] = float(found[name])
    return found
