"""Health and metrics over real HTTP, with a real database behind them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import aiohttp
import asyncpg
import pytest
from tests.support.serving import serving

from penstock import Penstock
from penstock.api import health as health_module
from penstock.api.health import Health, HealthServer, database_check
from penstock.kernel.database import Database
from penstock.kernel.metrics import Metrics, read_stats
from penstock.kernel.schema import migrate, select_products
from penstock.kernel.secrets import Secret

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def served(health: Health) -> AsyncIterator[str]:
    server = HealthServer(health, host="127.0.0.1", port=0)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.text()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url, size=2)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def test_a_fitting_database_is_ready(database_url: str) -> None:
    async with opened(database_url) as database:
        health = Health(database_check(database, select_products()))
        async with served(health) as base:
            assert await get(f"{base}/healthz") == (200, '{"status":"ok"}')
            assert await get(f"{base}/readyz") == (200, '{"status":"ready"}')
            assert (await get(f"{base}/metrics"))[0] == 404


async def test_a_database_without_schema_is_unready_and_says_no_more(empty_url: str) -> None:
    async with opened(empty_url) as database:
        health = Health(database_check(database, select_products()))
        async with served(health) as base:
            assert await get(f"{base}/readyz") == (503, '{"status":"unready"}')
            assert (await get(f"{base}/healthz"))[0] == 200


async def test_readiness_follows_the_schema(database_url: str, conn: Conn) -> None:
    async with opened(database_url) as database:
        health = Health(database_check(database, select_products()))
        async with served(health) as base:
            assert (await get(f"{base}/readyz"))[0] == 200
            await conn.execute("update penstock.migration set version = version + 5")
            health_module.READY_CACHE_S, kept = 0.0, health_module.READY_CACHE_S
            try:
                assert (await get(f"{base}/readyz"))[0] == 503
            finally:
                health_module.READY_CACHE_S = kept


async def test_a_process_that_is_stuck_is_not_healthy(database_url: str) -> None:
    async def never() -> None:
        raise AssertionError("liveness must not ask the database")

    async with served(Health(never, alive=lambda: False)) as base:
        assert (await get(f"{base}/healthz"))[0] == 503


async def test_metrics_hold_the_depths_and_ask_for_their_key(database_url: str, conn: Conn) -> None:
    await conn.execute("insert into public.outbox (topic, payload) values ('t', '{}')")
    async with opened(database_url) as database:
        health = Health(
            database_check(database, ()),
            metrics=Metrics(read_stats(database)),
            metrics_key=Secret("scrape"),
        )
        async with served(health) as base:
            for header in ("", "Bearer wrong", "scrape", "Basic scrape"):
                assert await get(f"{base}/metrics", Authorization=header) == (401, "")
            status, text = await get(f"{base}/metrics", Authorization="Bearer scrape")
    assert status == 200
    assert 'outbox_pending_depth{queue="outbox"} 1.0' in text
    assert "penstock_stats_up 1.0" in text


@pytest.mark.parametrize("product", ["kernel", "outbox", "intake", "payments", "inbox"])
async def test_a_server_is_unready_where_any_installed_product_does_not_fit(
    database_url: str, conn: Conn, monkeypatch: pytest.MonkeyPatch, product: str
) -> None:
    monkeypatch.setattr(health_module, "READY_CACHE_S", 0.0)
    async with serving(Penstock(database_url)) as base:
        assert await get(f"{base}/readyz") == (200, '{"status":"ready"}')
        query = "update penstock.migration set version = version + 5 where product = $1"
        await conn.execute(query, product)
        assert await get(f"{base}/readyz") == (503, '{"status":"unready"}')


async def test_a_server_is_ready_where_a_product_was_left_out(empty_url: str) -> None:
    await migrate(empty_url, only="inbox")
    async with serving(Penstock(empty_url)) as base:
        assert (await get(f"{base}/readyz"))[0] == 200


async def test_a_server_on_a_database_without_schema_is_unready(empty_url: str) -> None:
    async with serving(Penstock(empty_url)) as base:
        assert (await get(f"{base}/readyz"))[0] == 503
