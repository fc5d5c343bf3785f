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


@pytest.mark.parametrize("fairness", ["none", "round_robin"])
async def test_a_paused_tenant_waits_and_nobody_else_does(conn: Session, fairness: str) -> None:
    outbox = SqlOutbox(conn)
    await outbox.policy(fairness=fairness)
    paused, other = uuid4(), uuid4()
    for tenant in (paused, other, None):
        await outbox.publish(3, tenant=tenant)
    nobody = "insert into penstock.pause (target, reason, paused_by) values ($1, 'r', 'ann')"
    await conn.execute(nobody, "tenant/nobody")
    await conn.execute("set role penstock_operator")
    target = f"tenant/{str(paused).upper()}"
    await conn.execute("select penstock.pause_target($1, 'asked to')", target)
    await conn.execute("reset role")
    taken = await outbox.claim()
    seqs = [item.seq for item in taken]
    tenants = await conn.fetch("select tenant_id from public.outbox where seq = any($1)", seqs)
    assert sorted(str(row[0]) for row in tenants) == sorted([str(other)] * 3 + ["None"] * 3)
    assert await outbox.claim(tenant=paused) == []
    await conn.execute(
        "select penstock.resume_target($1, 'again')", f"tenant/{str(paused).upper()}"
    )
    assert len(await outbox.claim()) == 3


async def test_deliveries_of_a_paused_tenant_wait_too(
    conn: Session,
) -> None:
    outbox = SqlOutbox(conn)
    await conn.execute(
        """insert into public.outbox_destinations (name, kind) values ('acme', 'http');
           insert into public.outbox_routes (route, topic, destination) values ('a', '*', 'acme')"""
    )
    paused, other = uuid4(), uuid4()
    for tenant in (paused, other, None):
        await outbox.publish(2, tenant=tenant)
    await conn.fetch("select app.outbox_expand()")
    await conn.execute("select penstock.pause_target($1, 'asked to')", f"tenant/{paused}")
    claim = "select tenant_id from app.outbox_claim_for(array['acme'], array[100], $1)"
    taken = [row["tenant_id"] for row in await conn.fetch(claim, uuid4())]
    assert sorted(map(str, taken)) == sorted([str(other)] * 2 + ["None"] * 2)
    await conn.execute("select penstock.resume_target($1, 'again')", f"tenant/{paused}")
    assert [row["tenant_id"] for row in await conn.fetch(claim, uuid4())] == [paused] * 2


async def test_a_bound_worker_is_given_no_deliveries_and_a_paused_outbox_gives_none(
    conn: Session,
) -> None:
    """Deliveries are claimed by destination, for all tenants: that is for services only."""
    outbox = SqlOutbox(conn)
    await conn.execute(
        """insert into public.outbox_destinations (name, kind) values ('acme', 'http');
           insert into public.outbox_routes (route, topic, destination) values ('a', '*', 'acme')"""
    )
    await outbox.publish(1, tenant=MINE)
    claim = "select * from app.outbox_claim_for(array['acme'], array[100], gen_random_uuid())"
    await conn.execute("select penstock.pause_target('outbox', 'asked to')")
    assert await conn.fetchval("select app.outbox_expand()") == 0
    await conn.execute("select penstock.resume_target('outbox', 'again')")
    assert await conn.fetchval("select app.outbox_expand()") == 1
    await conn.execute("select penstock.pause_target('outbox', 'asked to')")
    assert await conn.fetch(claim) == []
    await conn.execute("select penstock.resume_target('outbox', 'again')")
    await conn.execute("select set_config('penstock.tenant', $1, false)", str(MINE))
    assert await conn.fetch(claim) == []
    await conn.execute("select set_config('penstock.tenant', '', false)")
    assert len(await conn.fetch(claim)) == 1
