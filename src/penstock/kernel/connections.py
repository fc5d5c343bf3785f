"""Runs our SQL on a connection that belongs to the user, whatever the driver.

Our statements have `$1` parameters with explicit casts, and pass text, text arrays and numbers
only: a driver's own codecs, registered by the user for jsonb or uuid, then cannot get in the way.
No driver but asyncpg is imported here before a connection of that driver has been handed in.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.kernel.errors import NotInTransaction, PenstockError, WrongUsage, error_for
from penstock.kernel.queue import Connection
from penstock.kernel.tx import AsyncpgConnection, Tx

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    import sqlalchemy.orm
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

Rows: TypeAlias = Sequence[Mapping[str, Any]]


class DjangoConnection(Protocol):
    """What is asked of `django.db.connection`."""

    in_atomic_block: bool

    def cursor(self) -> Any:
        """A cursor of the database below."""
        ...

    def get_autocommit(self) -> bool:
        """Whether every statement commits by itself."""
        ...


AsyncConn: TypeAlias = (
    "Tx | AsyncpgConnection | psycopg.AsyncConnection[Any] | AsyncSession | AsyncConnection"
)
SyncConn: TypeAlias = (
    "psycopg.Connection[Any] | sqlalchemy.orm.Session | sqlalchemy.Connection | DjangoConnection"
)

_PARAMETER = re.compile(r"\$(\d+)|%")
_CAUSES_MAX = 5
_AUTOCOMMITS = "no transaction is open, and the connection commits every statement by itself"


class SyncConnection(Protocol):
    """What a store needs of a blocking connection."""

    def fetch(self, query: str, *args: object) -> Rows:
        """Run one statement with `$n` parameters and return its rows."""
        ...

    def autocommits(self) -> bool:
        """Whether a statement run now would commit by itself."""
        ...


class UserConnection(Connection, Protocol):
    """A user's connection behind one face."""

    async def autocommits(self) -> bool:
        """Whether a statement run now would commit by itself."""
        ...


def adapt(conn: object) -> UserConnection:
    """The one face of an async connection; raises WrongUsage for what is none."""
    families = _families(conn)
    if isinstance(conn, Tx):
        return _Asyncpg(conn.connection)
    if "asyncpg.Connection" in families or "asyncpg.PoolConnectionProxy" in families:
        return _Asyncpg(conn)
    if "psycopg.AsyncConnection" in families:
        return _PsycopgAsync(conn)
    if families & {"sqlalchemy.AsyncSession", "sqlalchemy.async_scoped_session"}:
        return _AlchemyAsync(conn, session=True)
    if "sqlalchemy.AsyncConnection" in families:
        return _AlchemyAsync(conn, session=False)
    if _is_sync(families):
        raise WrongUsage(
            f"{_name(conn)} is a blocking connection",
            todo="use publish_sync, enqueue_sync or finish_sync with it, or pass an async one.",
        )
    raise _unknown(conn, "asyncpg, psycopg.AsyncConnection, SQLAlchemy AsyncSession or Tx")


def adapt_sync(conn: object) -> SyncConnection:
    """The one face of a blocking connection; raises WrongUsage for what is none."""
    families = _families(conn)
    if "psycopg.Connection" in families:
        return _Psycopg(conn)
    if families & {"sqlalchemy.Session", "sqlalchemy.scoped_session"}:
        return _Alchemy(conn, session=True)
    if "sqlalchemy.Connection" in families:
        return _Alchemy(conn, session=False)
    if families & {"django.BaseDatabaseWrapper", "django.ConnectionProxy"}:
        return _Django(conn)
    if isinstance(conn, Tx) or any("async" in name.lower() for name in families):
        raise WrongUsage(
            f"{_name(conn)} is an async connection",
            todo="use `await publish(…)` or `await event.finish(…)` with it.",
        )
    raise _unknown(conn, "psycopg.Connection, SQLAlchemy Session or Connection, or Django's")


async def require_transaction(conn: UserConnection, *, autocommit_ok: bool = False) -> None:
    """Raise NotInTransaction when a statement on the connection would commit by itself."""
    if not autocommit_ok and await conn.autocommits():
        raise NotInTransaction(_AUTOCOMMITS)


def require_transaction_sync(conn: SyncConnection, *, autocommit_ok: bool = False) -> None:
    """Raise NotInTransaction when a statement on the connection would commit by itself."""
    if not autocommit_ok and conn.autocommits():
        raise NotInTransaction(_AUTOCOMMITS)


def translate_any(error: BaseException) -> PenstockError | None:
    """Our error for one that SQL of ours raised, through however many layers wrapped it."""
    seen: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if seen is None:
            return None
        diagnosis = getattr(seen, "diag", None)
        state = getattr(seen, "sqlstate", None) or getattr(diagnosis, "sqlstate", None)
        if isinstance(state, str) and state.startswith("PN"):
            return _from_diagnosis(state, seen, diagnosis)
        # Where a contract names a standard SQLSTATE, our code stands in the detail.
        detail = getattr(diagnosis, "message_detail", None) or getattr(seen, "detail", None)
        if state in {"22023", "P0001"} and str(detail or "").startswith("PN"):
            return _from_diagnosis(str(detail), seen, diagnosis)
        inner = getattr(seen, "orig", None) or seen.__cause__
        seen = inner if isinstance(inner, BaseException) else None
    return None


def _from_diagnosis(state: str, error: BaseException, diagnosis: object) -> PenstockError:
    def field(psycopg_name: str, asyncpg_name: str) -> str:
        value = getattr(diagnosis, psycopg_name, None) or getattr(error, asyncpg_name, None)
        if value is None and isinstance(error.__cause__, BaseException):
            value = getattr(error.__cause__, asyncpg_name, None)
        return str(value or "")

    detail = field("message_detail", "detail")
    return error_for(
        state,
        field("message_primary", "message"),
        happened="" if detail == state else detail,
        todo=field("message_hint", "hint"),
    )


@lru_cache(maxsize=64)
def to_pyformat(query: str) -> str:
    """`$1` as `%(p1)s`, and every other percent sign doubled."""
    return _PARAMETER.sub(lambda m: f"%(p{m[1]})s" if m[1] else "%%", query)


@lru_cache(maxsize=64)
def to_format(query: str) -> str:
    """`$1` as `%s`; only for statements that use their parameters in order, once each."""
    return _PARAMETER.sub(lambda m: "%s" if m[1] else "%%", query)


def _named(args: Sequence[object]) -> dict[str, object]:
    return {f"p{place}": value for place, value in enumerate(args, 1)}


def _families(conn: object) -> frozenset[str]:
    """`package.Class` for the class of a connection and all its bases."""
    return frozenset(
        f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(conn).__mro__
    )


def _is_sync(families: frozenset[str]) -> bool:
    return bool(
        families
        & {
            "psycopg.Connection",
            "sqlalchemy.Session",
            "sqlalchemy.scoped_session",
            "sqlalchemy.Connection",
            "django.BaseDatabaseWrapper",
            "django.ConnectionProxy",
        }
    )


def _name(conn: object) -> str:
    return f"{type(conn).__module__}.{type(conn).__qualname__}"


def _unknown(conn: object, known: str) -> WrongUsage:
    if conn is None:
        return WrongUsage("no connection was given", todo=f"pass {known}.")
    return WrongUsage(f"{_name(conn)} is not a connection known here", todo=f"pass {known}.")


class _Asyncpg:
    """asyncpg needs no adapting; its errors are translated by `database.call`."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def fetch(self, query: str, *args: object) -> Rows:
        rows: Rows = await self._conn.fetch(query, *args)
        return rows

    def is_in_transaction(self) -> bool:
        return bool(self._conn.is_in_transaction())

    async def autocommits(self) -> bool:
        return not self._conn.is_in_transaction()


def _psycopg_autocommits(conn: Any) -> bool:
    idle = import_module("psycopg.pq").TransactionStatus.IDLE
    return bool(conn.autocommit and conn.info.transaction_status == idle)


class _PsycopgAsync:
    """psycopg 3. The cursor is made here: the user's may have another row or cursor factory."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def fetch(self, query: str, *args: object) -> Rows:
        psycopg = import_module("psycopg")
        rows = import_module("psycopg.rows")
        try:
            async with psycopg.AsyncCursor(self._conn, row_factory=rows.dict_row) as cursor:
                await cursor.execute(to_pyformat(query), _named(args))
                found: Rows = await cursor.fetchall()
                return found
        except psycopg.Error as error:
            _reraise(error)
            raise

    async def autocommits(self) -> bool:
        return _psycopg_autocommits(self._conn)


class _Psycopg:
    """psycopg 3, blocking."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def fetch(self, query: str, *args: object) -> Rows:
        psycopg = import_module("psycopg")
        rows = import_module("psycopg.rows")
        try:
            with psycopg.Cursor(self._conn, row_factory=rows.dict_row) as cursor:
                cursor.execute(to_pyformat(query), _named(args))
                found: Rows = cursor.fetchall()
                return found
        except psycopg.Error as error:
            _reraise(error)
            raise

    def autocommits(self) -> bool:
        return _psycopg_autocommits(self._conn)


def _statement(paramstyle: str, query: str, args: Sequence[object]) -> tuple[str, Any]:
    """The statement and its parameters as the driver below SQLAlchemy takes them."""
    if paramstyle == "numeric_dollar":
        return query, tuple(args)
    if paramstyle == "pyformat":
        return to_pyformat(query), _named(args)
    if paramstyle == "format":
        return to_format(query), tuple(args)
    raise WrongUsage(f"SQLAlchemy with a driver of parameter style {paramstyle!r} is not supported")


class _AlchemyAsync:
    """SQLAlchemy's async session or connection over any driver; a session begins by itself."""

    def __init__(self, conn: Any, *, session: bool) -> None:
        self._conn = conn
        self._session = session

    async def fetch(self, query: str, *args: object) -> Rows:
        errors = import_module("sqlalchemy.exc")
        conn = await self._conn.connection() if self._session else self._conn
        statement, parameters = _statement(conn.dialect.paramstyle, query, args)
        try:
            result = await conn.exec_driver_sql(statement, parameters)
            return [dict(row) for row in result.mappings()]
        except errors.DBAPIError as error:
            _reraise(error)
            raise

    async def autocommits(self) -> bool:
        conn = await self._conn.connection() if self._session else self._conn
        return _alchemy_autocommits(conn.sync_connection)


class _Alchemy:
    """SQLAlchemy's blocking session or connection over any driver; a session begins by itself."""

    def __init__(self, conn: Any, *, session: bool) -> None:
        self._conn = conn
        self._session = session

    def fetch(self, query: str, *args: object) -> Rows:
        errors = import_module("sqlalchemy.exc")
        conn = self._conn.connection() if self._session else self._conn
        statement, parameters = _statement(conn.dialect.paramstyle, query, args)
        try:
            result = conn.exec_driver_sql(statement, parameters)
            return [dict(row) for row in result.mappings()]
        except errors.DBAPIError as error:
            _reraise(error)
            raise

    def autocommits(self) -> bool:
        return _alchemy_autocommits(self._conn.connection() if self._session else self._conn)


def _alchemy_autocommits(conn: Any) -> bool:
    """SQLAlchemy begins by itself; only the isolation level AUTOCOMMIT keeps it from doing so."""
    return bool(getattr(conn.connection.dbapi_connection, "autocommit", False))


class _Django:
    """Django's connection. Its cursor takes `%s` for every backend of Postgres."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def fetch(self, query: str, *args: object) -> Rows:
        errors = import_module("django.db.utils")
        try:
            with self._conn.cursor() as cursor:
                cursor.execute(to_pyformat(query), _named(args))
                names = [column[0] for column in cursor.description]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except errors.Error as error:
            _reraise(error)
            raise

    def autocommits(self) -> bool:
        return bool(not self._conn.in_atomic_block and self._conn.get_autocommit())


def _reraise(error: Exception) -> None:
    """Raise our error in place of a driver's, where SQL of ours raised it; else do nothing."""
    ours = translate_any(error)
    if ours is not None:
        raise ours from error
