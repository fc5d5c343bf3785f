"""app.outbox_claim: order, limits, tokens, filters, epochs."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

TENANT_A = UUID(int=1)
TENANT_B = UUID(int=2)


async def test_rows_come_in_the_order_of_publishing(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    ids = await outbox.publish(6)
    assert [item.id for item in await outbox.claim(4)] == ids[:4]
    assert [item.id for item in await outbox.claim(4)] == ids[4:]


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 100), (0, 1), (-5, 1), (1, 1), (1000, 1000), (2**31 - 1, 1000)]
)
async def test_a_limit_is_clamped_to_one_and_a_thousand(
    conn: "asyncpg.Connection[asyncpg.Record]", limit: int | None, expected: int
) -> None:
    outbox = SqlOutbox(conn)
    await conn.execute(
        "insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 1200)"
    )
    assert len(await outbox.claim(limit)) == expected


async def test_a_live_token_cannot_be_used_again(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(2)
    token = uuid4()
    await outbox.claim(1, token=token)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await outbox.claim(1, token=token)
    assert refused.value.sqlstate == "PN201"


async def test_a_claim_without_a_token_is_refused(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch("select * from app.outbox_claim(1, null)")
    assert refused.value.sqlstate == "PN201"


async def test_each_claim_counts_an_attempt_and_raises_the_epoch(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(1)
    seen = []
    for _ in range(3):
        items = await outbox.claim()
        seen.append((items[0].attempts, items[0].epoch))
        await outbox.fail(items)
        await outbox.tend()
    assert seen == [(1, 1), (2, 2), (3, 3)]


async def test_a_tenant_sees_its_own_rows_only(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    for tenant in (TENANT_A, TENANT_B, None, TENANT_A):
        await conn.execute("select app.outbox_publish(null, 't', '{}', p_tenant => $1)", tenant)
    rows = await conn.fetch(
        "select tenant_id from app.outbox_claim(10, gen_random_uuid(), $1)", TENANT_A
    )
    assert [row["tenant_id"] for row in rows] == [TENANT_A, TENANT_A]
    assert len(await outbox.claim()) == 2


async def test_topics_can_be_chosen_and_left_out(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    for topic in ("a", "b", "c"):
        await outbox.publish(1, topic=topic)
    chosen = await outbox.claim(topics=["a", "b"], skip=["b"])
    assert [item.topic for item in chosen] == ["a"]
    assert [item.topic for item in await outbox.claim()] == ["b", "c"]


async def test_concurrent_claims_share_no_row_and_leave_none(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await conn.execute(
        "insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 2000)"
    )
    pool = await asyncpg.create_pool(database_url, min_size=8, max_size=8)
    async with pool:

        async def claim() -> list[UUID]:
            async with pool.acquire() as one:
                rows = await one.fetch(
                    "select id from app.outbox_claim(50, gen_random_uuid(), null)"
                )
                return [row["id"] for row in rows]

        answers = await asyncio.gather(*(claim() for _ in range(60)))
    ids = [event for answer in answers for event in answer]
    assert len(ids) == len(set(ids)) == 2000


async def test_a_scheduled_event_is_claimed_only_when_it_is_due(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    (later,) = await outbox.publish(1, after=timedelta(minutes=5))
    assert await outbox.state(later) == "WAITING"
    await outbox.tend()
    assert await outbox.claim() == []
    await outbox.advance(timedelta(minutes=6))
    await outbox.tend()
    assert [item.id for item in await outbox.claim()] == [later]


async def test_ready_says_whether_a_claim_may_find_something(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    assert not await conn.fetchval("select app.outbox_ready()")
    await outbox.publish(1)
    assert await conn.fetchval("select app.outbox_ready()")
    await outbox.claim()
    assert not await conn.fetchval("select app.outbox_ready()")
