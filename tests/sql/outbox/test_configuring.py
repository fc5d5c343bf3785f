"""Changes of destinations and routes while workers deliver to them."""

import json

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import Connection

PUT = "select app.outbox_put_destination($1, $2, $3::jsonb, 'test')"
CLAIM = "select * from app.outbox_claim_for('{a}', '{1}', gen_random_uuid())"
GONE = "select app.outbox_gone('a', 'HTTP_410', $1)"


async def _put(conn: Connection, kind: str = "stdout", **values: object) -> None:
    await conn.execute(PUT, "a", kind, json.dumps(values))


async def _served(conn: Connection) -> int:
    version: int = await conn.fetchval("select version from app.outbox_serving()")
    return version


@pytest.fixture
async def routed(conn: Connection) -> Connection:
    await _put(conn)
    await conn.execute("select app.outbox_put_route('a', 't', 'a', 'test')")
    return conn


@pytest.mark.parametrize("change", ["reconfigured", "rotated", "enabled"])
async def test_a_late_410_does_not_disable_what_was_changed_since(
    routed: Connection, change: str
) -> None:
    old = await _served(routed)
    if change == "rotated":
        await routed.execute("select app.outbox_rotate_destination('a', 'env:A_SECRET', 'test')")
    elif change == "reconfigured":
        await _put(routed, concurrency=2)
    else:
        await _put(routed, enabled=False)
        await _put(routed, enabled=True)
    assert await routed.fetchval(GONE, old) is None
    assert await _served(routed) > old, "and it is served on"
    assert await routed.fetchval(GONE, await _served(routed)) is not None
    assert await routed.fetchval("select count(*) from app.outbox_serving()") == 0


async def test_a_function_that_is_not_listed_cannot_be_configured(conn: Connection) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await _put(conn, "sql", config={"function": "shop.take"})
    assert refused.value.sqlstate == "PN006"
    assert "listed" in (refused.value.detail or ""), "it says what happened, not that of the code"
    with pytest.raises(asyncpg.PostgresError) as refused:
        await _put(conn, "sql")
    assert refused.value.sqlstate == "PN006"
    assert await conn.fetchval("select count(*) from public.outbox_destinations") == 0
    await conn.execute("insert into public.outbox_functions values ('shop.take')")
    await _put(conn, "sql", config={"function": "shop.take"})


async def test_removing_a_route_makes_no_claim_wait(routed: Connection, database_url: str) -> None:
    async with Stage(database_url) as stage:
        slow, removing, other = await stage.sessions("slow", "removing", "other")
        await slow.begin()
        await slow.run(CLAIM)
        step = removing.start("select app.outbox_remove_route('a', 'not wanted')")
        await stage.until_blocked(removing, step)
        assert await other.run(CLAIM) == [], "it is answered although the first one is still open"
        assert not step.task.done()
        await slow.commit()
        await step.done()
    assert await routed.fetchval("select count(*) from public.outbox_routes") == 0


async def test_routes_that_stay_in_use_are_given_up(routed: Connection, database_url: str) -> None:
    async with Stage(database_url) as stage:
        (slow,) = await stage.sessions("slow")
        await slow.begin()
        await slow.run(CLAIM)
        await routed.execute("set lock_timeout = '7s'")
        with pytest.raises(asyncpg.PostgresError) as refused:
            await routed.execute("select app.outbox_lock_routes(2)")
        assert refused.value.sqlstate == "PN405"
        await slow.commit()
    async with routed.transaction():
        await routed.execute("select app.outbox_lock_routes(2)")
        assert await routed.fetchval("show lock_timeout") == "7s", "as it was before"
