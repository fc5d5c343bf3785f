"""Fairness between tenants: a flood of one takes no more than its share of a claim."""

from collections import Counter
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.outbox import Leased, SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.policy(fairness="round_robin")
    return outbox


async def _fill(conn: Session, tenant: UUID | None, count: int) -> None:
    await conn.execute(
        """insert into public.outbox (topic, payload, tenant_id)
           select 't', '{}', $1 from generate_series(1, $2::int)""",
        *(tenant, count),
    )


async def _shares(conn: Session, items: list[Leased]) -> Counter[UUID | None]:
    rows = await conn.fetch(
        "select tenant_id from public.outbox where seq = any($1)", [item.seq for item in items]
    )
    return Counter(row[0] for row in rows)


async def test_a_flood_of_one_tenant_leaves_the_others_their_share(
    conn: Session, outbox: SqlOutbox
) -> None:
    loud, *quiet = (uuid4() for _ in range(4))
    await _fill(conn, loud, 5000)
    for tenant in quiet:
        await _fill(conn, tenant, 30)
    shares = await _shares(conn, await outbox.claim(100))
    assert sum(shares.values()) == 100
    assert all(shares[tenant] == 20 for tenant in quiet)
    await outbox.policy(fairness="none")
    assert await _shares(conn, await outbox.claim(100)) == {loud: 100}


async def test_nothing_is_left_out_and_nothing_comes_twice(
    conn: Session, outbox: SqlOutbox
) -> None:
    for tenant in (uuid4(), uuid4(), None):
        await _fill(conn, tenant, 70)
    seen: list[int] = []
    while items := await outbox.claim(50):
        seen += [item.seq for item in items]
        await outbox.finish(items)
    assert len(seen) == len(set(seen)) == 210


async def test_with_more_tenants_than_a_claim_holds_all_have_their_turn(
    conn: Session, outbox: SqlOutbox
) -> None:
    await conn.execute(
        """insert into public.outbox (topic, payload, tenant_id)
           select 't', '{}', gen_random_uuid() from generate_series(1, 40)"""
    )
    claims = [await outbox.claim(10) for _ in range(4)]
    assert [len(items) for items in claims] == [10] * 4
    assert len({item.seq for items in claims for item in items}) == 40


async def test_topics_and_keys_are_respected(conn: Session, outbox: SqlOutbox) -> None:
    tenant = uuid4()
    await outbox.publish(3, tenant=tenant, key="k")
    await outbox.publish(3, tenant=tenant, topic="other")
    assert len(await outbox.claim(topics=["t"])) == 1
    assert await outbox.claim(skip=["other"]) == []
    assert len(await outbox.claim(tenant=tenant)) == 3
