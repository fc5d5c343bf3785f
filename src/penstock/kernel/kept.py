"""Connections that stay at hand between two uses, instead of going back to the pool.

To give a connection to the pool and to have it again takes two tasks and a timer: as long as a
short statement. So the one that was used last waits here for a moment. It still counts as the
pool's: who finds none here asks the pool, and while anybody waits there, everything goes back.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

PooledConnection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

KEPT_MAX = 2
# The pool closes what is idle for long or was used very often, so it has each back now and then. An
# odd number: where two take turns, each gets its own.
KEPT_S = 1.0
PUTS_MAX = 9_999


@dataclass(slots=True)
class _Waiting:
    conn: PooledConnection
    since: float


class Kept:
    """A pool, and a few of its connections at hand, the last used first."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self.pool = pool
        self._waiting: list[_Waiting] = []
        self._asking = 0
        self._puts = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._releases: set[asyncio.Task[None]] = set()

    def take(self) -> "PooledConnection | None":
        """The connection that was used last, if there is one that is open; else ask the pool."""
        while self._waiting:
            conn = self._waiting.pop().conn
            if _is_usable(conn):
                return conn
            self._let_go(conn)
        return None

    async def acquire(self, timeout_s: float) -> PooledConnection:
        """A connection of the pool; waits for it no longer than so."""
        self._asking += 1
        try:
            return await self.pool.acquire(timeout=timeout_s)
        finally:
            self._asking -= 1

    def put(self, conn: PooledConnection) -> bool:
        """Keep a connection; false if it has to go back to the pool."""
        self._puts += 1
        if (
            self._closed
            or self._asking
            or len(self._waiting) >= KEPT_MAX
            or self._puts % PUTS_MAX == 0
            or not _is_usable(conn)
        ):
            return False
        self._waiting.append(_Waiting(conn, monotonic()))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._look)
        return True

    async def close(self) -> None:
        """Close the pool, waiting for connections in use."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._let_go(each.conn)
        await self.pool.close()

    def _look(self) -> None:
        """Let go of what nobody has used of late; those are in front."""
        self._timer = None
        unused_since = monotonic() - KEPT_S
        while self._waiting and self._waiting[0].since <= unused_since:
            self._let_go(self._waiting.pop(0).conn)
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._look)

    def _let_go(self, conn: PooledConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._release(conn))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, conn: PooledConnection) -> None:
        # One that broke meanwhile is thrown away by the pool, and nobody has lost anything by it.
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self.pool.release(conn)


def _is_usable(conn: PooledConnection) -> bool:
    """Whether it is open and nothing was left unfinished on it."""
    try:
        return not conn.is_closed() and not conn.is_in_transaction()
    except asyncpg.InterfaceError:
        return False  # it broke, and the pool has taken it back already
