"""Removing a route: it is gone at once, and what it leaves is cancelled piece by piece."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import Routed

from penstock.outbox import store

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
REMOVE = "select app.outbox_remove_route('a', 'not wanted', 'ann')"
STEP = "select cancelled, held, ended from app.outbox_remove_step($1, $2)"
CLAIM = "select * from app.outbox_claim_for($1, '{100}', gen_random_uuid())"


@pytest.fixture
async def outbox(conn: Session) -> Routed:
    return Routed(conn)


async def _remove(conn: Session) -> int:
    """Remove the route `a` and all it leaves; how much that was."""
    await conn.execute("set role penstock_control")
    await conn.execute(REMOVE)
    cancelled, held, ended = await _step(conn, 10_000)
    await conn.execute("reset role")
    assert (held, ended) == (False, True)
    assert isinstance(cancelled, int)
    return cancelled


async def _step(conn: Session, limit: int, route: str | None = "a") -> tuple[Any, ...]:
    row = await conn.fetchrow(STEP, route, limit)
    assert row is not None
    return tuple(row)


async def _ready(outbox: Routed, count: int, *, routes: Sequence[str] = ("a",)) -> None:
    """Deliveries that are on their way along each route."""
    for route in routes:
        await outbox.route(route, "t", to=route)
    await outbox.conn.execute(
        "insert into public.outbox (topic, payload, route, event_topic)"
        " select r, '{}', r, 't' from generate_series(1, $1::int), unnest($2::text[]) r",
        *(count, routes),
    )


async def test_a_route_that_goes_takes_what_waits_on_it_along(
    conn: Session, outbox: Routed
) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "t", to="b")
    (event,) = await outbox.publish(1, key="k")
    await outbox.publish(2, key="k")
    for _ in range(3):
        await outbox.expand()
    await outbox.finish([await outbox.one("b")])
    assert await _remove(conn) == 3
    audited = await conn.fetch(
        "select operation, row_data ->> 'cancelled', reason, operator,"
        " row_data ->> 'removal' = lag(id::text) over (order by id) from audit.audit_logs"
        " where table_name = 'public.outbox_routes' and operation <> 'apply' order by id"
    )
    assert [tuple(row) for row in audited] == [
        ("remove", None, "not wanted", "ann", None),
        ("cancel", "3", "not wanted", "ann", True),
    ]
    assert await outbox.state(event) == "DELIVERED"
    assert await outbox.deliveries(event) == {"a": "CANCELLED", "b": "DELIVERED"}


async def test_a_delivery_in_flight_goes_with_its_route_and_its_result_is_kept(
    conn: Session, outbox: Routed
) -> None:
    await outbox.route("a", "t")
    await outbox.route("b", "t", to="b")
    (event,) = await outbox.publish(1)
    await outbox.expand()
    item = await outbox.one("a")
    assert await _remove(conn) == 1
    assert await outbox.deliveries(event) == {"a": "CANCELLED", "b": "READY"}
    assert await outbox.finish([item]) == [item.seq], "its worker is refused"
    assert await conn.fetchval("select verdict from penstock.late_results") == "done"
    await outbox.finish([await outbox.one("b")])
    assert await outbox.state(event) == "DELIVERED"


async def test_a_claim_under_way_is_waited_for_when_its_route_goes(
    outbox: Routed, database_url: str
) -> None:
    await outbox.route("a", "t")
    await outbox.publish(1)
    await outbox.expand()
    async with Stage(database_url) as stage:
        claiming, removing = await stage.sessions("claiming", "removing")
        await claiming.begin()
        assert len(await claiming.run(CLAIM, ["a"])) == 1
        step = removing.start(REMOVE)
        await stage.until_blocked(removing, step)
        await claiming.commit()
        await step.done()
    assert await _step(outbox.conn, 1000) == (1, False, True)
    left = "select count(*) from public.outbox"
    assert await outbox.conn.fetchval(left) == 0, "nothing stays that nobody would deliver"


async def test_a_route_can_go_while_its_events_die(outbox: Routed, database_url: str) -> None:
    await outbox.route("a", "t")
    await outbox.publish(1)
    await outbox.expand()
    item = await outbox.one("a")
    async with Stage(database_url) as stage:
        between, failing, removing = await stage.sessions("between", "failing", "removing")
        await between.begin()
        await between.run("lock table public.outbox_alerts in access exclusive mode")
        failed = failing.start(
            "select * from app.outbox_mark_failed(array[$1::bigint], array[$2::uuid],"
            " array[$3::uuid], '{reject}', '{0}', '{HTTP_400}', '{no}')",
            item.seq,
            item.id,
            item.token,
        )
        await stage.until_blocked(failing, failed)
        removed = removing.start(REMOVE)
        await stage.until_blocked(removing, removed)
        await between.commit()
        assert await failed.done() == []
        await removed.done()


async def test_a_large_backlog_is_cancelled_in_steps_and_keeps_no_claim_waiting(
    conn: Session, outbox: Routed, database_url: str
) -> None:
    await _ready(outbox, 250, routes=("a", "b"))
    await conn.execute(REMOVE)
    assert await conn.fetchval("select count(*) from public.outbox where route = 'a'") == 250
    async with Stage(database_url) as stage:
        removing, claiming = await stage.sessions("removing", "claiming")
        await removing.begin()
        assert [tuple(row) for row in await removing.run(STEP, "a", 100)] == [(100, False, False)]
        assert await claiming.run(CLAIM, ["a"]) == [], "nobody delivers what is left"
        assert len(await claiming.run(CLAIM, ["b"])) == 100
        await removing.commit()
    assert [await _step(conn, 100) for _ in range(2)] == [(100, False, False), (50, False, True)]
    assert await conn.fetchval("select count(*) from public.outbox where route = 'b'") == 250
    counted = "select row_data ->> 'cancelled' from audit.audit_logs where operation = 'cancel'"
    assert await conn.fetchval(counted) == "250"
    assert await _step(conn, 100) == (0, False, True)


async def test_a_step_that_is_undone_is_done_again(conn: Session, outbox: Routed) -> None:
    await _ready(outbox, 30)
    await conn.execute(REMOVE)
    transaction = conn.transaction()
    await transaction.start()
    assert await _step(conn, 20) == (20, False, False)
    await transaction.rollback()
    assert [await _step(conn, 20) for _ in range(2)] == [(20, False, False), (10, False, True)]


async def test_what_somebody_holds_is_met_again_and_stops_nothing_else(
    conn: Session, outbox: Routed, database_url: str
) -> None:
    await _ready(outbox, 5)
    await conn.execute(REMOVE)
    async with Stage(database_url) as stage:
        (holding,) = await stage.sessions("holding")
        await holding.begin()
        await holding.run(
            "select from public.outbox where seq ="
            " (select seq from public.outbox order by seq offset 1 limit 1) for update"
        )
        assert await _step(conn, 1000) == (4, True, False)
        await store.end_removals(conn)  # which ends, although it is not done
        assert await _step(conn, 1000) == (0, True, False)
        await holding.commit()
    assert await _step(conn, 1000) == (1, False, True)


async def test_two_who_cancel_the_same_do_not_wait_for_each_other(
    conn: Session, outbox: Routed, database_url: str
) -> None:
    await _ready(outbox, 5)
    await conn.execute(REMOVE)
    async with Stage(database_url) as stage:
        (first,) = await stage.sessions("first")
        await first.begin()
        await first.run(STEP, "a", 2)
        for route in ("a", None):
            assert await _step(conn, 1000, route) == (0, True, False)
        await first.commit()
    assert await _step(conn, 1000, None) == (3, False, True)


async def test_what_is_left_goes_with_a_route_that_is_there_again(
    conn: Session, outbox: Routed
) -> None:
    await _ready(outbox, 30)
    await conn.execute(REMOVE)
    assert await _step(conn, 10) == (10, False, False)
    await outbox.route("a", "t")
    assert await _step(conn, 10) == (0, False, True)
    assert len(await conn.fetch(CLAIM, ["a"])) == 20
    assert await _remove(conn) == 20, "a second time it goes with all it has"


async def test_a_step_looks_at_so_many_events_whosever_they_are(
    conn: Session, outbox: Routed
) -> None:
    await conn.execute(
        "insert into public.outbox (topic, payload) select 'x', '{}' from generate_series(1, 20500)"
    )
    await _ready(outbox, 3)
    await conn.execute(REMOVE)
    assert [await _step(conn, 1000) for _ in range(2)] == [(0, False, False), (3, False, True)]


async def test_a_worker_cancels_what_nobody_waited_for(conn: Session, outbox: Routed) -> None:
    await _ready(outbox, 1_200, routes=("a", "b"))
    await conn.execute(REMOVE)
    await conn.execute(REMOVE.replace("'a'", "'b'"))
    await conn.execute("set role penstock_outbox_executor")
    await store.end_removals(conn)
    await conn.execute("reset role")
    for table in ("public.outbox", "public.outbox_removals"):
        assert await conn.fetchval(f"select count(*) from {table}") == 0
    assert await conn.fetchval("select every_s from penstock.schedule where job like '%removals'")
