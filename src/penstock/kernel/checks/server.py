"""Checks of the server itself: version, schema, durability, what keeps dead rows alive."""

import time

from penstock.kernel.checks.examination import CannotSee, Check, Examination, Finding, Severity
from penstock.kernel.database import call
from penstock.kernel.errors import SchemaMissing, SchemaTooNew
from penstock.kernel.schema import check_schema

VERSION_MIN, VERSION_MAX = 15, 18
SNAPSHOT_AGE_MAX_S = 300
CLOCK_DIFFERENCE_MAX_S = 2.0
NOTIFY_USAGE_MAX = 0.25

_SNAPSHOTS = """
select pid, coalesce(application_name, '') as app, coalesce(usename, '') as login,
       coalesce(state, '') as state,
       extract(epoch from clock_timestamp() - xact_start)::float8 as age_s
from pg_catalog.pg_stat_activity
where backend_xmin is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
  and xact_start < clock_timestamp() - make_interval(secs => $1)
order by xact_start limit 5
"""
_SLOTS = """
select slot_name, active, age(coalesce(xmin, catalog_xmin)) as xmin_age
from pg_catalog.pg_replication_slots
where not active and coalesce(xmin, catalog_xmin) is not null
"""
_PREPARED = """
select gid, extract(epoch from clock_timestamp() - prepared)::float8 as age_s
from pg_catalog.pg_prepared_xacts
where database = current_database() and prepared < clock_timestamp() - make_interval(secs => $1)
"""
_DURABILITY = """
select name, setting from pg_catalog.pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off'
"""
# pgmq keeps one unlogged table by design: when it last notified, which a crash may forget.
_OWN_TABLES = """
select c.oid::regclass::text as name, c.relpersistence = 'u' as unlogged,
       c.relispartition and pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' as is_default,
       pg_relation_size(c.oid) as bytes
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r'
  and c.relowner = (select relowner from pg_class where oid = to_regclass('penstock.migration'))
  and n.nspname not in ('pg_catalog', 'information_schema')
  and (n.nspname, c.relname) <> ('pgmq', 'notify_insert_throttle')
"""


async def _version(exam: Examination) -> list[Finding]:
    rows = await call(exam.conn, "select current_setting('server_version_num')::int as number")
    major = int(rows[0]["number"]) // 10_000
    if VERSION_MIN <= major <= VERSION_MAX:
        return []
    text = f"the server is PostgreSQL {major}; {VERSION_MIN} to {VERSION_MAX} are supported"
    severity: Severity = "error" if major < VERSION_MIN else "warning"
    return [Finding("version", severity, text, "upgrade the server, or this package")]


async def _schema(exam: Examination) -> list[Finding]:
    try:
        await check_schema(exam.conn, exam.products)
    except (SchemaMissing, SchemaTooNew) as error:
        return [Finding("schema", "error", error.what, error.todo)]
    return []


async def _durability(exam: Examination) -> list[Finding]:
    return [
        Finding(
            "durability",
            "warning" if row["name"] == "synchronous_commit" else "error",
            f"{row['name']} is off: what was answered with success can be lost in a crash",
            f"alter system set {row['name']} = 'on'; select pg_reload_conf();",
        )
        for row in await call(exam.conn, _DURABILITY)
    ]


async def _snapshots(exam: Examination) -> list[Finding]:
    seeing = await call(
        exam.conn, "select pg_has_role(current_user, 'pg_read_all_stats', 'usage') as sees"
    )
    if not seeing[0]["sees"]:
        # The server hides other logins' snapshots from us: finding none would prove nothing.
        raise CannotSee("other sessions are hidden", "grant pg_read_all_stats to this login")
    return [*await _held_by_sessions(exam), *await _held_by_others(exam)]


async def _held_by_sessions(exam: Examination) -> list[Finding]:
    return [
        Finding(
            "snapshots",
            "error",
            f"pid {row['pid']} (app={row['app'] or '-'}, user={row['login'] or '-'}, "
            f"{row['state']}) has held a snapshot for {row['age_s'] / 60:.0f} min: "
            "dead rows cannot be cleaned",
            f"select pg_terminate_backend({row['pid']});",
        )
        for row in await call(exam.conn, _SNAPSHOTS, float(SNAPSHOT_AGE_MAX_S))
    ]


async def _held_by_others(exam: Examination) -> list[Finding]:
    found = []
    for row in await call(exam.conn, _SLOTS):
        text = f"unused replication slot {row['slot_name']} keeps {row['xmin_age']:,} transactions"
        remedy = f"select pg_drop_replication_slot('{row['slot_name']}'); if nobody needs it"
        found.append(Finding("snapshots", "error", text, remedy))
    for row in await call(exam.conn, _PREPARED, float(SNAPSHOT_AGE_MAX_S)):
        text = f"prepared transaction {row['gid']} is {row['age_s'] / 60:.0f} min old"
        remedy = f"commit prepared '{row['gid']}' or rollback prepared '{row['gid']}'"
        found.append(Finding("snapshots", "error", text, remedy))
    return found


async def _clock(exam: Examination) -> list[Finding]:
    before = time.time()
    rows = await call(
        exam.conn, "select extract(epoch from clock_timestamp())::float8 as at, clock_timestamp()"
    )
    difference = float(rows[0]["at"]) - (before + time.time()) / 2
    if abs(difference) <= CLOCK_DIFFERENCE_MAX_S:
        return []
    text = (
        f"this machine's clock differs from the database's by {difference:+.1f} s; leases are not "
        "affected, token expiry and log times are"
    )
    return [Finding("clock", "warning", text, "let both machines follow the same time service")]


async def _notifications(exam: Examination) -> list[Finding]:
    rows = await call(exam.conn, "select pg_notification_queue_usage()::float8 as share")
    share = float(rows[0]["share"])
    if share < NOTIFY_USAGE_MAX:
        return []
    text = f"the notification queue is {share:.0%} full: a listener is stuck in a transaction"
    remedy = "find it: select pid, query from pg_stat_activity where query ilike 'listen%';"
    return [Finding("notifications", "error", text, remedy)]


async def _tables(exam: Examination) -> list[Finding]:
    found = []
    for row in await call(exam.conn, _OWN_TABLES):
        if row["unlogged"]:
            text = f"table {row['name']} is unlogged: a crash empties it"
            remedy = f"alter table {row['name']} set logged;"
            found.append(Finding("tables", "error", text, remedy))
        if row["is_default"] and row["bytes"]:
            text = f"rows fell into the default partition {row['name']}: partitions ran out"
            remedy = "see that a worker runs (it makes partitions), then `penstock migrate`"
            found.append(Finding("tables", "warning", text, remedy))
    return found


SERVER_CHECKS = (
    Check("version", _version),
    Check("schema", _schema),
    Check("durability", _durability),
    Check("snapshots", _snapshots),
    Check("clock", _clock),
    Check("notifications", _notifications),
    Check("tables", _tables, needs_schema=True),
)
