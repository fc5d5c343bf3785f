"""The drivers a user may bring, each opened on a database, in a transaction or in autocommit."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from contextlib import contextmanager as sync_manager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
from psycopg import rows as psycopg_rows
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from penstock import Tx

Opened = AbstractAsyncContextManager[Any]
OpenedSync = AbstractContextManager[Any]


@asynccontextmanager
async def with_asyncpg(url: str, autocommit: bool) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(url)
    # A codec of the user's own must not matter to us.
    await conn.set_type_codec(
        "jsonb", encoder=lambda _: "broken", decoder=lambda _: 0, schema="pg_catalog"
    )
    try:
        if autocommit:
            yield conn
        else:
            async with conn.transaction():
                yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str, autocommit: bool) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as conn:
        if autocommit:
            yield conn
        else:
            async with conn.transaction():
                yield conn


@asynccontextmanager
async def with_tx(url: str, autocommit: bool) -> AsyncIterator[Any]:
    async with with_asyncpg(url, autocommit) as conn:
        yield Tx(conn)


@asynccontextmanager
async def with_psycopg(url: str, autocommit: bool) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=autocommit, row_factory=psycopg_rows.scalar_row
    ) as conn:
        conn.cursor_factory = psycopg.AsyncRawCursor
        yield conn


def with_session(driver: str) -> Callable[[str, bool], Opened]:
    @asynccontextmanager
    async def opened(url: str, autocommit: bool) -> AsyncIterator[Any]:
        engine = _async_engine(url, driver, autocommit)
        try:
            async with AsyncSession(engine) as session:
                yield session
        finally:
            await engine.dispose()

    return opened


def with_alchemy(driver: str) -> Callable[[str, bool], Opened]:
    @asynccontextmanager
    async def opened(url: str, autocommit: bool) -> AsyncIterator[Any]:
        engine = _async_engine(url, driver, autocommit)
        try:
            async with engine.connect() as conn:
                yield conn
        finally:
            await engine.dispose()

    return opened


def alchemy_address(url: str, driver: str) -> tuple[str, dict[str, Any]]:
    parts = urlsplit(url)
    place = {name: values[0] for name, values in parse_qs(parts.query).items()}
    place["port"] = str(place.get("port", 5432))
    query = "&".join(f"{name}={value}" for name, value in place.items())
    return f"postgresql+{driver}://{parts.username}@/{parts.path[1:]}?{query}", {}


def _async_engine(url: str, driver: str, autocommit: bool) -> Any:
    address, arguments = alchemy_address(url, driver)
    engine = create_async_engine(address, connect_args=arguments, poolclass=NullPool)
    return engine.execution_options(isolation_level="AUTOCOMMIT") if autocommit else engine


ASYNC = {
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "tx": with_tx,
    "psycopg": with_psycopg,
    "session over asyncpg": with_session("asyncpg"),
    "session over psycopg": with_session("psycopg"),
    "connection over asyncpg": with_alchemy("asyncpg"),
    "connection over psycopg": with_alchemy("psycopg"),
}


@sync_manager
def with_psycopg_sync(url: str, autocommit: bool) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=autocommit, row_factory=psycopg_rows.scalar_row) as conn:
        yield conn


@sync_manager
def with_session_sync(url: str, autocommit: bool) -> Iterator[Any]:
    engine = create_engine(alchemy_address(url, "psycopg")[0], poolclass=NullPool)
    if autocommit:
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        yield session


@sync_manager
def with_alchemy_sync(url: str, autocommit: bool) -> Iterator[Any]:
    engine = create_engine(
        alchemy_address(url, "psycopg")[0],
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
    )
    with engine.connect() as conn:
        yield conn


@sync_manager
def with_django(url: str, autocommit: bool) -> Iterator[Any]:
    django_db = django_on(url)
    try:
        if autocommit:
            yield django_db.connection
        else:
            with django_db.transaction.atomic():
                yield django_db.connection
    finally:
        django_db.connections.close_all()


def django_on(url: str) -> Any:
    """Django's database module, with its default connection to this address."""
    import django
    import django.conf
    import django.db

    parts = urlsplit(url)
    place = {name: values[0] for name, values in parse_qs(parts.query).items()}
    wanted = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": place["host"],
        "PORT": place.get("port", "5432"),
    }
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={"default": wanted}, USE_TZ=True)
        django.setup()
    django.db.connections.close_all()
    django.db.connection.settings_dict.update(wanted)
    return django.db


SYNC = {
    "psycopg": with_psycopg_sync,
    "session": with_session_sync,
    "connection": with_alchemy_sync,
    "django": with_django,
}
