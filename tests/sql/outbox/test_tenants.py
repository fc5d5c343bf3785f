"""Tenants: a session that is bound to one publishes, claims and cancels for that one only."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MINE = uuid4()
OTHERS = uuid4()
INSERT = "insert into public.outbox (topic, payload, tenant_id) values ('t', '{}', $1)"
BOUND = {
    "setting": ("penstock.tenant", str(MINE)),
    "claim": ("request.jwt.claims", json.dumps({"tenant_id": str(MINE)})),
    "app_metadata": (
        "request.jwt.claims",
        json.dumps({"app_metadata": {"tenant_id": str(MINE)}, "tenant_id": str(OTHERS)}),
    ),
}


@asynccontextmanager
async def _as(conn: Session, role: str) -> AsyncIterator[None]:
    await conn.execute(f"set role {role}")
    try:
        yield
    finally:
        await conn.execute("reset role")


async def _tenants(conn: Session) -> list[UUID | None]:
    return [row[0] for row in await conn.fetch("select tenant_id from public.outbox order by seq")]


async def _refused(conn: Session, query: str, *args: object) -> str:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(query, *args)
    return str(refused.value.sqlstate)


@pytest.mark.parametrize("bound", BOUND)
async def test_a_producer_publishes_for_its_own_tenant_only(conn: Session, bound: str) -> None:
    await conn.execute("select set_config($1, $2, false)", *BOUND[bound])
    async with _as(conn, "penstock_outbox_ingest"):
        await conn.execute(INSERT, MINE)
        await conn.execute("insert into public.outbox (topic, payload) values ('t', '{}')")
        await conn.execute("select app.outbox_publish(null, 't', '{}')")
        await conn.execute("select app.outbox_publish_many('t', '[[null, {}]]')")
        assert await _refused(conn, INSERT, OTHERS) == "42501"
        assert await _refused(conn, INSERT, None) == "42501"
        publish = "select app.outbox_publish(null, 't', '{}', p_tenant => $1)"
        assert await _refused(conn, publish, OTHERS) == "PN007"
        publish_many = "select app.outbox_publish_many('t', '[[null, {}]]', p_tenant => $1)"
        assert await _refused(conn, publish_many, OTHERS) == "PN007"
    assert await _tenants(conn) == [MINE] * 4


async def test_a_service_publishes_for_any_tenant(conn: Session) -> None:
    async with _as(conn, "penstock_outbox_ingest"):
        for tenant in (MINE, OTHERS, None):
            await conn.execute(INSERT, tenant)
    assert await _tenants(conn) == [MINE, OTHERS, None]


async def test_a_bound_worker_sees_its_own_tenant_only(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    for tenant in (MINE, OTHERS, None):
        await outbox.publish(1, tenant=tenant)
    await conn.execute("select set_config('penstock.tenant', $1, false)", str(MINE))
    async with _as(conn, "penstock_outbox_executor"):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await outbox.claim(tenant=OTHERS)
        assert refused.value.sqlstate == "PN007"
        assert len(await outbox.claim()) == 1


async def test_nobody_cancels_another_tenants_event(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    (mine,) = await outbox.publish(1, tenant=MINE)
    (other,) = await outbox.publish(1, tenant=OTHERS)
    await conn.execute("select set_config('penstock.tenant', $1, false)", str(MINE))
    async with _as(conn, "penstock_outbox_ingest"):
        cancel = "select app.outbox_cancel($1, 'not wanted')"
        assert not await conn.fetchval(cancel, other)
        assert await conn.fetchval(cancel, mine)
