"""The one connection that a migration works on, and the lock that keeps others out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from penstock.kernel.database import translated

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# A transaction lock, because a session lock would be lost or kept for ever behind a pooler.
LOCK = "select pg_catalog.pg_advisory_xact_lock(5783942107311)"
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
    """A transaction in which no other migration of this database runs."""
    async with conn.transaction():
        await conn.execute("set local statement_timeout = 0")
        await conn.execute(LOCK)
        await conn.execute(QUIET)
        await conn.execute(PATIENCE)
        yield
