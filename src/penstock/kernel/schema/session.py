"""The one connection that a migration works on, and the lock that keeps others out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from penstock.kernel.database import translated

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# A transaction lock, because a session lock would be lost or kept for ever behind a pooler.
LOCK = "pg_catalog.pg_advisory_xact_lock(5783942107311)"
_TRY_LOCK = "select pg_catalog.pg_try_advisory_xact_lock(5783942107311)"
_LOCK_POLL_S = 0.05
# Names are qualified in all our SQL; an empty path proves it, and makes definitions print in full.
QUIET = """
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = off;
set local client_min_messages = warning;
set local row_security = on
"""
# A lock that does not come soon is given up and asked for again: while it waits, all who come
# later wait behind it.
PATIENCE = "set local lock_timeout = '5s'; set local statement_timeout = 0"


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Session]:
    """Open a connection of one's own; works through a transaction pooler."""
    with translated():
        conn: Session = await asyncpg.connect(
            url,
            timeout=10,
            statement_cache_size=0,
            server_settings={"application_name": "penstock migrate"},
        )
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def locked(conn: Session) -> AsyncIterator[None]:
    """A transaction in which no other migration of this database runs.

    The lock is asked for again and again instead of waited for: a waiting statement holds a
    snapshot, and the index build of the migration that has the lock would wait for that snapshot.
    """
    transaction = conn.transaction()
    await transaction.start()
    while not await conn.fetchval(_TRY_LOCK):
        await transaction.rollback()
        await asyncio.sleep(_LOCK_POLL_S)
        transaction = conn.transaction()
        await transaction.start()
    try:
        # These also close the query before, and with it its snapshot.
        await conn.execute(QUIET)
        await conn.execute(PATIENCE)
        yield
    except BaseException:
        if not conn.is_closed():
            await transaction.rollback()
        raise
    await transaction.commit()
