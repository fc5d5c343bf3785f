"""The smoke tests of the outbox claim's specification, in its own words and calls."""

from uuid import UUID

import asyncpg

ONES = UUID("11111111-1111-1111-1111-111111111111")
TWOS = UUID("22222222-2222-2222-2222-222222222222")


async def test_events_inserted_out_of_order_come_back_oldest_first(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await conn.execute(
        """
        insert into outbox (topic, payload, created_at)
        values ('test', '{"seq": 3}'::jsonb, now() - interval '1 hour'),
               ('test', '{"seq": 1}'::jsonb, now() - interval '3 hours'),
               ('test', '{"seq": 2}'::jsonb, now() - interval '2 hours')
        """
    )
    rows = await conn.fetch(
        "select payload ->> 'seq' as seq from app.outbox_claim(10, gen_random_uuid(), null)"
    )
    assert [row["seq"] for row in rows] == ["1", "2", "3"]


async def test_two_claims_share_no_id(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    await conn.execute(
        "insert into outbox (topic, payload) select 'test', '{}' from generate_series(1, 8)"
    )
    claim = "select id from app.outbox_claim(5, $1, null)"
    first = {row["id"] for row in await conn.fetch(claim, ONES)}
    second = {row["id"] for row in await conn.fetch(claim, TWOS)}
    assert (len(first), len(second)) == (5, 3)
    assert first.isdisjoint(second)


async def test_only_the_right_token_marks_delivered(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await conn.execute(
        "insert into outbox (topic, payload) select 'test', '{}' from generate_series(1, 4)"
    )
    rows = await conn.fetch("select id from app.outbox_claim(10, $1, null)", ONES)
    ids = [row["id"] for row in rows]
    mark = "select app.outbox_mark_delivered($1, $2)"
    assert await conn.fetchval(mark, TWOS, ids) == 0
    assert await conn.fetchval(mark, ONES, ids) == 4
    assert (
        await conn.fetchval("select count(*) from app.outbox_all where delivered_at is null") == 0
    )
