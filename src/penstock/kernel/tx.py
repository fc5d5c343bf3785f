"""The transaction a handler asks for: what it writes here and the end of its item are one commit.

It wraps asyncpg and offers no way to commit or roll back: that is the runner's part, because the
item is finished in this very transaction.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

AsyncpgConnection: TypeAlias = (
    "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
)


class Tx:
    """An open transaction over asyncpg, with `$1` parameters. It commits after the handler."""

    __slots__ = ("_conn",)

    def __init__(self, conn: AsyncpgConnection) -> None:
        self._conn = conn

    @property
    def connection(self) -> AsyncpgConnection:
        """The asyncpg connection below, for what is not offered here (COPY, cursors, types)."""
        return self._conn

    def is_in_transaction(self) -> bool:
        """Whether the transaction is still open; true for as long as the handler runs."""
        return self._conn.is_in_transaction()

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement and return its command tag, such as `UPDATE 1`."""
        return await self._conn.execute(query, *args)

    async def executemany(self, query: str, args: Iterable[Sequence[object]]) -> None:
        """Run a statement once per row of arguments."""
        await self._conn.executemany(query, args)

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        """Run a query and return all its rows."""
        return await self._conn.fetch(query, *args)

    async def fetchrow(self, query: str, *args: object) -> asyncpg.Record | None:
        """Run a query and return its first row, or None."""
        return await self._conn.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: object) -> Any:
        """Run a query and return the first column of its first row, or None."""
        return await self._conn.fetchval(query, *args)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator["Tx"]:
        """A part that can fail by itself: an exception undoes the block and nothing else."""
        async with self._conn.transaction():
            yield self
