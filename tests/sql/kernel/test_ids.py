"""penstock.clock and penstock.uuidv7."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg


async def test_the_clock_moves_within_a_transaction(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    async with conn.transaction():
        first = await conn.fetchval("select penstock.clock()")
        second = await conn.fetchval("select penstock.clock()")
        started = await conn.fetchval("select now()")
    assert started <= first < second
    assert abs(datetime.now(UTC) - second) < timedelta(seconds=5)


async def test_uuidv7_has_version_seven_and_the_rfc_variant(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    rows = await conn.fetch("select penstock.uuidv7() as id from generate_series(1, 500)")
    ids = [UUID(bytes=row["id"].bytes) for row in rows]
    assert {value.version for value in ids} == {7}
    assert {value.variant for value in ids} == {"specified in RFC 4122"}
    assert len(set(ids)) == 500


async def test_uuidv7_carries_the_time_and_sorts_by_it(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    rows = await conn.fetch(
        "select penstock.uuidv7() as id, clock_timestamp() as at, pg_sleep(0.002)"
        " from generate_series(1, 30)"
    )
    for row in rows:
        made = datetime.fromtimestamp((row["id"].int >> 80) / 1000, UTC)
        assert abs(made - row["at"]) < timedelta(milliseconds=50)
    ids = [row["id"] for row in rows]
    assert sorted(ids) == ids
    ordered = await conn.fetch("select id from unnest($1::uuid[]) as id order by id", ids)
    assert [row["id"] for row in ordered] == ids, "the server sorts them alike"
