"""The shop's own tests, with the tools that come with the package."""

import asyncpg
import pytest
from shop.events import Order, mail, mailed, paid

from penstock import Done, Penstock
from penstock.testing import drain, perform, published


async def test_mail_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert await perform(mail, Order(7)) == Done()
    assert "mailed 7" in capsys.readouterr().out


async def test_paying_publishes_what_follows(
    ps: Penstock, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await paid.publish(conn, Order(42))
    await drain(ps, conn)
    assert len(await published(conn, mailed, number=42)) == 1
    assert await conn.fetchval("select count(*) from effects where kind = 'counted'") == 1


async def test_nothing_of_the_test_before_is_left(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    assert await conn.fetchval("select count(*) from effects") == 0
    assert await published(conn, paid) == []
