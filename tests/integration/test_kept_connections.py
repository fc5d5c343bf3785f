"""A connection waits at hand for its next use, and nobody else has to wait because of it."""

import asyncio

import asyncpg
import pytest
from tests.support.waiting import until_true

from penstock.kernel import kept
from penstock.kernel.database import Database
from penstock.kernel.errors import DatabaseUnreachable

PID = "select pg_backend_pid()"


@pytest.fixture
async def database(database_url: str) -> Database:
    database = Database(database_url, size=2)
    await database.open()
    return database


async def _pid(database: Database) -> int:
    async with database.connection() as conn:
        pid: int = await conn.fetchval(PID)
        return pid


async def test_it_is_the_same_one_and_the_pool_is_not_asked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await _pid(database)

    async def asked(*_: object) -> None:
        raise AssertionError("the pool was asked")

    with monkeypatch.context() as patch:
        patch.setattr(kept.Kept, "acquire", asked)
        assert [await _pid(database) for _ in range(3)] == [first] * 3
    await database.close()


async def test_who_waits_gets_what_comes_back(database: Database) -> None:
    async with database.connection(), database.connection():
        waiting = asyncio.create_task(_pid(database))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(waiting, 5)
    many = await asyncio.gather(*(_pid(database) for _ in range(50)))
    assert len(set(many)) == 2
    await database.close()


async def test_one_that_the_server_ended_is_not_handed_out(
    database: Database, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with database.connection() as borrowed:
        pid = await borrowed.fetchval(PID)
    await conn.execute("select pg_terminate_backend($1, 5000)", pid)
    await until_true(lambda: _is_gone(borrowed), "the end is heard of")
    assert await _pid(database) != pid
    await database.close()


def _is_gone(borrowed: kept.PooledConnection) -> bool:
    try:
        return borrowed.is_closed()
    except asyncpg.InterfaceError:
        return True


@pytest.mark.parametrize("left", ["begin", "select pg_sleep(30)"])
async def test_what_was_left_unfinished_is_not_handed_on(database: Database, left: str) -> None:
    async def leaving() -> None:
        async with database.connection() as conn:
            await conn.execute(left)

    task = asyncio.create_task(leaving())
    await asyncio.wait({task}, timeout=0.2)
    task.cancel()
    await asyncio.wait({task})
    async with database.connection() as conn:
        assert await asyncio.wait_for(conn.fetchval("select 1"), 5) == 1
        assert not conn.is_in_transaction()
    await database.close()


async def test_after_a_moment_without_use_the_pool_has_it_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "KEPT_S", 0.01)
    async with database.connection() as borrowed:
        pass
    await until_true(lambda: _is_gone(borrowed), "it went back")
    await database.close()


async def test_closing_does_not_wait_for_what_is_at_hand(database: Database) -> None:
    await _pid(database)
    await asyncio.wait_for(database.close(), 2)


async def test_now_and_then_the_pool_has_it_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "PUTS_MAX", 3)
    seen = []
    for _ in range(7):
        async with database.connection() as borrowed:
            seen.append(borrowed)
    assert len({id(each) for each in seen}) == 3
    await database.close()


async def test_who_finds_none_in_time_is_told(database: Database) -> None:
    async with database.connection(), database.connection():
        with pytest.raises(DatabaseUnreachable):
            async with database.connection(timeout_s=0.05):
                pass
    await database.close()
