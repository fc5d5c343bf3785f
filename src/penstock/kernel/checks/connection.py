"""Checks of the way to the server: poolers, LISTEN, how many connections there may be."""

import asyncio
from uuid import uuid4

import asyncpg

from penstock.kernel.checks.examination import Check, Examination, Finding
from penstock.kernel.database import CONNECTION_ERRORS, call, is_pooler
from penstock.kernel.errors import SchemaMissing, SchemaTooNew
from penstock.kernel.schema import LEDGER, check_schema, select_products
from penstock.kernel.secrets import mask_text
from penstock.kernel.settings import Settings

LISTEN_WAIT_S = 2.0
# One connection of its own for LISTEN and one for extending leases, besides the pool.
EXTRA_CONNECTIONS = 2
REFUSALS: tuple[type[Exception], ...] = (asyncpg.PostgresError, *CONNECTION_ERRORS)

_BUDGET = """
select current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int as usable,
       (select count(*) from pg_catalog.pg_stat_activity
         where backend_type = 'client backend') as used,
       (select count(*) from penstock.worker
         where heartbeat_at > penstock.clock() - interval '1 minute') as live_workers
"""


async def _pooler(exam: Examination) -> list[Finding]:
    """A pooler that is not known as one breaks prepared statements and LISTEN without a word."""
    url = exam.settings.require_database()
    declared = exam.settings.uses_pooler()
    expected = is_pooler(url) if declared is None else declared
    if expected or not await _hands_out_other_backends(url):
        return []
    text = "a transaction pooler stands in between, and pooler is not on"
    return [Finding("pooler", "error", text, "set PENSTOCK_POOLER=on, and PENSTOCK_DIRECT_URL")]


async def _hands_out_other_backends(url: str) -> bool:
    """Whether one client connection meets several backends: only a transaction pooler does that."""
    clients = [await asyncpg.connect(url, timeout=5, statement_cache_size=0) for _ in range(2)]
    try:
        first = {await client.fetchval("select pg_backend_pid()") for client in clients}
        return len(first) < len(clients)
    finally:
        for client in clients:
            await client.close()


async def _listen(exam: Examination) -> list[Finding]:
    if exam.settings.listen == "off":
        return []
    if await _hears_itself(exam.settings.listen_url()):
        return []
    text = "LISTEN does not arrive here: wake-ups come from polling alone"
    remedy = "set PENSTOCK_DIRECT_URL to the server itself, or PENSTOCK_LISTEN=off"
    return [Finding("listen", "warning", text, remedy)]


async def _hears_itself(url: str) -> bool:
    """Listen on one connection, notify from another, and wait a moment."""
    channel = f"penstock_doctor_{uuid4().hex}"
    heard = asyncio.Event()
    try:
        listener = await asyncpg.connect(url, timeout=5, statement_cache_size=0)
    except CONNECTION_ERRORS:
        return False
    try:
        sender = await asyncpg.connect(url, timeout=5, statement_cache_size=0)
        try:
            await listener.add_listener(channel, lambda *_heard: heard.set())
            await sender.execute("select pg_notify($1, '')", channel)
            async with asyncio.timeout(LISTEN_WAIT_S):
                await heard.wait()
        finally:
            await sender.close()
    except (TimeoutError, asyncpg.PostgresError):
        return False
    finally:
        listener.terminate()
    return True


async def _budget(exam: Examination) -> list[Finding]:
    row = (await call(exam.conn, _BUDGET))[0]
    per_worker = connections_per_worker(exam.settings)
    needed = int(row["live_workers"]) * per_worker
    found = []
    if needed > int(row["usable"]):
        text = (
            f"worker connections: {row['live_workers']} processes x {per_worker} = {needed} of "
            f"{row['usable']} usable"
        )
        found.append(
            Finding("budget", "warning", text, "lower pool_size, or raise max_connections")
        )
    if int(row["used"]) > 0.9 * int(row["usable"]):
        text = f"{row['used']} of {row['usable']} usable connections are taken"
        remedy = "select usename, application_name, count(*) from pg_stat_activity group by 1, 2;"
        found.append(Finding("budget", "error", text, remedy))
    return found


async def _ledger(exam: Examination) -> list[Finding]:
    """The second database, where one is named: reachable, and with a schema that fits."""
    if exam.settings.ledger_url is None:
        return []
    try:
        conn = await asyncpg.connect(exam.settings.require_ledger(), timeout=5)
    except REFUSALS as error:
        text = f"the ledger database is not reachable: {mask_text(str(error))}"
        remedy = "reservations wait meanwhile; check PENSTOCK_LEDGER_URL and that server"
        return [Finding("ledger", "error", text, remedy)]
    try:
        await check_schema(conn, select_products(LEDGER))
    except (SchemaMissing, SchemaTooNew) as error:
        return [Finding("ledger", "error", f"in the ledger database, {error.what}", error.todo)]
    finally:
        await conn.close()
    return []


def connections_per_worker(settings: Settings) -> int:
    """Most connections one worker process opens."""
    return settings.pool_size + EXTRA_CONNECTIONS


CONNECTION_CHECKS = (
    Check("pooler", _pooler),
    Check("listen", _listen),
    Check("ledger", _ledger),
    Check("budget", _budget, needs_schema=True),
)
