"""Connections to one database, and the only place where driver errors become ours.

Works through transaction poolers: no session state, no named prepared statements when the URL is a
pooler's. Statements are repeated after serialization failures and deadlocks, because every verb of
ours is idempotent.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg
from asyncpg.transaction import Transaction

from penstock.kernel import kept
from penstock.kernel.errors import (
    DatabaseUnreachable,
    NotPermitted,
    PenstockError,
    SchemaMissing,
    error_for,
)
from penstock.kernel.grants import missing_grant
from penstock.kernel.queue import Connection

PooledConnection: TypeAlias = kept.PooledConnection

PURGE_BATCH = 10_000  # as in the SQL functions
POOLER_PORTS = frozenset({6432, 6543})
CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    OSError,  # includes TimeoutError
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # What asyncpg says of a connection that the server closed with a last word while it was idle.
    asyncpg.InternalClientError,
)
DRIVER_ERRORS: tuple[type[Exception], ...] = (asyncpg.PostgresError, *CONNECTION_ERRORS)
# What a database without our schema says is missing: one of our schemas, tables or functions.
_OURS = re.compile(r"penstock|outbox|intake|payment|webhook|inventory_slots|\"app\"|\bapp\.|audit")
_REPEAT_PAUSES_S = (0.005, 0.013, 0.034, 0.089)
REPEATABLE_ERRORS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
# The server says "not now": timeouts, a full disk, a read-only standby. The same statement may
# succeed later, so whoever works in a loop waits and goes on.
PASSING_ERRORS: tuple[type[Exception], ...] = (
    DatabaseUnreachable,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalServerError,
)


def translate(error: BaseException) -> PenstockError | None:
    """Our error for a driver's, or None where the driver's own is the better one to see."""
    if isinstance(error, CONNECTION_ERRORS):
        return DatabaseUnreachable(f"{type(error).__name__}: {error}".rstrip(": "))
    if isinstance(error, asyncpg.PostgresError):
        return _translate_sqlstate(error)
    return None


def _translate_sqlstate(error: asyncpg.PostgresError) -> PenstockError | None:
    state = error.sqlstate or ""
    if state.startswith("PN"):
        return error_for(
            state, str(error.message), happened=error.detail or "", todo=error.hint or ""
        )
    # Where a contract names a standard SQLSTATE, our code stands in the detail.
    if state in {"22023", "P0001"} and (error.detail or "").startswith("PN"):
        return error_for(str(error.detail), str(error.message), todo=error.hint or "")
    if state == "42501":
        return NotPermitted(str(error.message), todo=missing_grant(str(error.message)))
    if state in {"3F000", "42P01", "42883"} and _OURS.search(str(error.message)):
        return SchemaMissing(str(error.message))
    if state.startswith("28") or state == "3D000":
        return DatabaseUnreachable(
            str(error.message),
            happened="the server is there and did not let us in.",
            todo="check user, password and database in the address; "
            "`penstock config` shows where it comes from.",
        )
    return None


@contextmanager
def translated() -> Iterator[None]:
    """Turn driver errors inside the block into ours."""
    try:
        yield
    except DRIVER_ERRORS as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error


def is_pooler(url: str) -> bool:
    """Whether the URL points at the usual port of a transaction pooler."""
    return urlsplit(url).port in POOLER_PORTS


async def call(conn: Connection, query: str, *args: object) -> Sequence[Mapping[str, Any]]:
    """Run one of our statements and return its rows, with errors translated.

    A serialization failure or deadlock is repeated a few times: every verb of ours is idempotent.
    """
    for pause_s in (*_REPEAT_PAUSES_S, None):
        try:
            return await conn.fetch(query, *args)
        except REPEATABLE_ERRORS:
            if pause_s is None or getattr(conn, "is_in_transaction", bool)():
                raise  # in a transaction that is aborted, only the caller can repeat it
            await asyncio.sleep(pause_s)
        except DRIVER_ERRORS as error:
            ours = translate(error)
            if ours is None:
                raise
            raise ours from error
    raise AssertionError("the last try returns or raises")


async def purge(conn: Connection, query: str) -> None:
    """Repeat a purge while it finds full batches: one a run would fall behind a busy producer."""
    while (await call(conn, query))[0]["count"] >= PURGE_BATCH:
        pass


async def _rollback(transaction: Transaction) -> None:
    """Roll back; on a broken connection the server has already done so."""
    try:
        await transaction.rollback()
    except DRIVER_ERRORS:
        return


class Borrowing:
    """A connection on loan for the length of a block.

    Only the borrowing is translated: an OSError raised inside the block may be the caller's.
    """

    __slots__ = ("_conn", "_keeps", "_pool", "_timeout_s")

    def __init__(
        self, pool: kept.Kept, timeout_s: float, keeps: Callable[[PooledConnection], bool]
    ) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._keeps = keeps
        self._conn: PooledConnection | None = None

    async def __aenter__(self) -> PooledConnection:
        conn = self._pool.take()
        if conn is None:
            with translated():
                conn = await self._pool.acquire(self._timeout_s)
        self._conn = conn
        return conn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        conn, self._conn = self._conn, None
        assert conn is not None, "entered before it is left"
        # A connection that broke meanwhile is thrown away by the pool; what was done with it before
        # is done, so that is no error of the block.
        with suppress(*DRIVER_ERRORS):
            if kind is None and self._keeps(conn) and self._pool.put(conn):
                return
            await asyncio.shield(self._pool.pool.release(conn))


class Database:
    """A pool of connections to one database. Opens nothing until `open()`."""

    def __init__(
        self,
        url: str,
        *,
        size: int = 10,
        pooler: bool | None = None,
        application_name: str = "penstock",
        statement_timeout_s: float = 30.0,
    ) -> None:
        self.url = url
        self.size = size
        self.pooler = is_pooler(url) if pooler is None else pooler
        self.application_name = application_name
        self.statement_timeout_s = statement_timeout_s
        self._pool: kept.Kept | None = None
        self._lent: set[int] = set()

    async def open(self) -> None:
        """Open the pool; raises DatabaseUnreachable with the reason if no connection is had."""
        if self._pool is not None:
            return
        with translated():
            pool = await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=self.size,
                command_timeout=self.statement_timeout_s + 5,
                statement_cache_size=0 if self.pooler else 100,
                server_settings=self._server_settings(),
                timeout=5,
                reset=self._reset,
            )
        self._pool = kept.Kept(pool)

    async def _reset(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Undo what a session may have been left with, where code of others has used it.

        Our own statements leave nothing behind, and asking each time would double the round trips.
        An open transaction has been rolled back before this.
        """
        pid = conn.get_server_pid()
        if self.pooler or pid in self._lent:
            self._lent.discard(pid)
            await conn.reset()

    async def close(self) -> None:
        """Close the pool, waiting a little for connections in use, then cutting them."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), 5)
        except CONNECTION_ERRORS:
            pool.pool.terminate()

    def connection(
        self, *, timeout_s: float = 10.0
    ) -> AbstractAsyncContextManager[PooledConnection]:
        """Borrow a connection; waiting is bounded, so that starvation is an error, not a hang."""
        assert self._pool is not None, "open() comes first"
        return Borrowing(self._pool, timeout_s, self._keeps)

    def _keeps(self, conn: PooledConnection) -> bool:
        """Whether a session needs no reset."""
        return not self.pooler and conn.get_server_pid() not in self._lent

    @asynccontextmanager
    async def transaction(self, *, timeout_s: float = 10.0) -> AsyncIterator[PooledConnection]:
        """Borrow a connection inside a transaction that commits when the block ends well."""
        async with self.connection(timeout_s=timeout_s) as conn:
            self._lent.add(conn.get_server_pid())
            transaction = conn.transaction()
            with translated():
                await transaction.start()
            try:
                yield conn
            except BaseException:
                await _rollback(transaction)
                raise
            with translated():
                await transaction.commit()

    async def dedicated(self) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection of one's own, outside the pool: for LISTEN and for lease extension."""
        with translated():
            return await asyncpg.connect(
                self.url,
                timeout=5,
                command_timeout=self.statement_timeout_s + 5,
                statement_cache_size=0 if self.pooler else 100,
                server_settings=self._server_settings(),
            )

    def _server_settings(self) -> dict[str, str]:
        # A pooler refuses start-up parameters it does not know; only the name is safe there.
        if self.pooler:
            return {"application_name": self.application_name}
        return {
            "application_name": self.application_name,
            "statement_timeout": f"{int(self.statement_timeout_s * 1000)}",
            "lock_timeout": "5000",
            "default_transaction_isolation": "read committed",
            "idle_in_transaction_session_timeout": "60000",
        }
