"""Topics that are ours: nobody else publishes to them, by whichever way."""

from typing import TypeAlias

import asyncpg
import pytest

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
WAYS = [
    "select app.outbox_publish(null, 'penstock.alert', '{}')",
    "select app.outbox_publish_many('penstock.anything', '[[null, {}]]')",
    "insert into public.outbox (topic, payload) values ('penstock.alert', '{}')",
]


@pytest.mark.parametrize("way", WAYS)
async def test_producers_do_not_publish_to_our_topics(conn: Session, way: str) -> None:
    await conn.execute("set role penstock_outbox_ingest")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(way)
    assert refused.value.sqlstate == "PN404"
    await conn.execute("reset role")
    assert await conn.fetchval("select count(*) from public.outbox") == 0


@pytest.mark.parametrize("way", WAYS)
async def test_names_that_only_look_alike_are_theirs(conn: Session, way: str) -> None:
    await conn.execute("set role penstock_outbox_ingest")
    await conn.execute(way.replace("penstock.", "penstocks."))
    await conn.execute("reset role")
    assert await conn.fetchval("select count(*) from public.outbox") == 1
