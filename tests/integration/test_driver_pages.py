"""The examples of docs/how-to/publish-with-your-driver.md, run as they stand."""

import re
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool
from tests.support.drivers import alchemy_address, django_on
from tests.support.outbox import Connection

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "publish-with-your-driver.md"
BLOCK = re.compile(r"^```(python runnable|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [body for info, body in BLOCK.findall(PAGE.read_text("utf-8")) if info == kind]


@pytest.fixture
async def shop(
    conn: Connection, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What the page defines, over a database with an order that is not paid."""
    await conn.execute("create table orders (id int primary key, paid bool default false)")
    await conn.execute("insert into orders (id) values (42)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", database_url)
    django_on(database_url)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python runnable"):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


async def paid(conn: Connection) -> bool:
    """Whether the change and the event are both there."""
    events = await conn.fetch("select topic, payload ->> 'order_id' as id from public.outbox")
    assert [tuple(row) for row in events] == [("orders.paid", "42")]
    found: bool = await conn.fetchval("select paid from orders where id = 42")
    return found


async def test_asyncpg(shop: dict[str, Any], conn: Connection, database_url: str) -> None:
    own = await asyncpg.connect(database_url)
    await shop["pay_asyncpg"](own, 42)
    await own.close()
    assert await paid(conn)


async def test_psycopg(shop: dict[str, Any], conn: Connection, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as own:
        await shop["pay_psycopg"](own, 42)
    assert await paid(conn)


async def test_psycopg_blocking(shop: dict[str, Any], conn: Connection, database_url: str) -> None:
    with psycopg.connect(database_url) as own:
        shop["pay_psycopg_blocking"](own, 42)
    assert await paid(conn)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_sqlalchemy(
    shop: dict[str, Any], conn: Connection, database_url: str, driver: str
) -> None:
    engine = create_async_engine(alchemy_address(database_url, driver)[0], poolclass=NullPool)
    await shop["pay_session"](async_sessionmaker(engine), 42)
    await engine.dispose()
    assert await paid(conn)


async def test_sqlalchemy_blocking(
    shop: dict[str, Any], conn: Connection, database_url: str
) -> None:
    engine = create_engine(alchemy_address(database_url, "psycopg")[0], poolclass=NullPool)
    shop["pay_session_blocking"](sessionmaker(engine), 42)
    engine.dispose()
    assert await paid(conn)


def test_django(shop: dict[str, Any], database_url: str) -> None:
    django_db = django_on(database_url)
    try:
        shop["pay_django"](42)
    finally:
        django_db.connections.close_all()
    with psycopg.connect(database_url) as other:
        rows = other.execute("select payload from public.outbox").fetchall()
        assert other.execute("select paid from orders").fetchall() == [(True,)]
    assert rows == [({"order_id": 42},)]


async def test_plain_sql(shop: dict[str, Any], conn: Connection) -> None:
    (script,) = blocks("sql")
    await conn.execute(script)
    assert await paid(conn)


async def test_many(shop: dict[str, Any], conn: Connection) -> None:
    assert await shop["pay_all"](conn, range(2500)) == 2500
    assert await conn.fetchval("select count(*) from public.outbox") == 2500
