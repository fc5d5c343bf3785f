"""Alerts: with every dead letter comes one, by kind and interval; none makes another."""

import asyncio
import json
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.outbox import SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALERT = "penstock.alert"
ROUTE = """
insert into public.outbox_destinations (name, kind) values ('pager', 'http') on conflict do nothing;
insert into public.outbox_routes (route, topic, destination)
values ('alerts', 'penstock.alert', 'pager');
"""


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await conn.execute(ROUTE)
    return outbox


async def _alerts(conn: Session) -> list[dict[str, Any]]:
    rows = await conn.fetch(
        "select payload::text from public.outbox where topic = $1 order by seq", ALERT
    )
    return [json.loads(row["payload"]) for row in rows]


async def _kinds(conn: Session) -> list[tuple[Any, ...]]:
    rows = await conn.fetch(
        "select topic, state, error_code, total, unsent from public.outbox_alerts order by 1, 2, 3"
    )
    return [tuple(row) for row in rows]


async def _kill(
    outbox: SqlOutbox, count: int = 1, *, topic: str = "t", code: str = "BAD", error: str = "no"
) -> list[UUID]:
    """Publish events and reject them, all in one call."""
    ids = await outbox.publish(count, topic=topic)
    await outbox.fail(await outbox.claim(1000, topics=[topic]), "reject", code=code, error=error)
    return ids


async def test_the_alert_comes_in_the_transaction_of_the_death(
    conn: Session, outbox: SqlOutbox
) -> None:
    (event,) = await outbox.publish()
    items = await outbox.claim()
    undone = conn.transaction()
    await undone.start()
    await outbox.fail(items, "reject", code="HTTP_503", error="upstream 17 failed")
    assert len(await _alerts(conn)) == 1
    await undone.rollback()
    assert await _alerts(conn) == []
    assert await _kinds(conn) == []
    await outbox.fail(items, "reject", code="HTTP_503", error="upstream 17 failed")
    (alert,) = await _alerts(conn)
    assert alert["topic"] == "t"
    assert (alert["state"], alert["error_code"], alert["count"]) == ("DEAD", "HTTP_503", 1)
    assert alert["examples"] == [str(event)]
    (letter,) = await conn.fetch("select fingerprint from app.outbox_dead where topic = 't'")
    assert alert["fingerprint"] == letter["fingerprint"]


async def test_a_thousand_deaths_of_one_kind_are_one_alert(
    conn: Session, outbox: SqlOutbox
) -> None:
    ids = await outbox.publish(1000)
    items = await outbox.claim(1000)
    rows = await conn.fetch(
        """select seq from app.outbox_mark_failed($1, $2, $3,
           array_fill('reject'::text, array[1000]), array_fill(0::float8, array[1000]),
           array_fill('HTTP_503'::text, array[1000]),
           array(select 'upstream ' || i || ' failed' from generate_series(1, 1000) i))""",
        [item.seq for item in items],
        [item.id for item in items],
        [item.token for item in items],
    )
    assert rows == []
    (alert,) = await _alerts(conn)
    assert (alert["count"], alert["total"], len(alert["examples"])) == (1000, 1000, 5)
    assert set(alert["examples"]) < {str(event) for event in ids}


async def _deliver_alerts(outbox: SqlOutbox) -> int:
    await outbox.tend()
    items = await outbox.claim(1000, topics=[ALERT])
    assert await outbox.finish(items) == []
    return len(items)


async def test_within_the_interval_further_deaths_are_gathered_in_the_next_alert(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _kill(outbox)
    assert await _deliver_alerts(outbox) == 1
    for _ in range(4):
        await _kill(outbox, 3)
    (alert,) = await _alerts(conn)
    assert (alert["count"], alert["total"]) == (12, 13)
    assert await _deliver_alerts(outbox) == 0
    await outbox.advance(timedelta(seconds=299))
    assert await _deliver_alerts(outbox) == 0
    await outbox.advance(timedelta(seconds=2))
    assert await _deliver_alerts(outbox) == 1
    await outbox.advance(timedelta(hours=1))
    await _kill(outbox)
    assert await _deliver_alerts(outbox) == 1  # after a quiet time it goes out at once


async def test_the_interval_is_that_of_the_job(conn: Session, outbox: SqlOutbox) -> None:
    await conn.execute("update penstock.schedule set every_s = 60 where job = 'outbox_alerts'")
    await _kill(outbox)
    await _deliver_alerts(outbox)
    await _kill(outbox)
    await outbox.advance(timedelta(seconds=61))
    assert await _deliver_alerts(outbox) == 1


async def test_an_alert_that_may_have_been_seen_is_not_changed(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _kill(outbox)
    leased = await outbox.claim(topics=[ALERT])
    await _kill(outbox)
    first, second = await _alerts(conn)
    assert (first["count"], second["count"]) == (1, 1)
    await outbox.fail(leased, "retry", delay_s=60)
    await _kill(outbox)
    first, second = await _alerts(conn)
    assert (first["count"], second["count"]) == (1, 2)


async def test_an_alert_that_was_tried_once_is_not_changed(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _kill(outbox)
    await outbox.fail(await outbox.claim(topics=[ALERT]), "retry", delay_s=60)
    await _kill(outbox)
    assert [alert["count"] for alert in await _alerts(conn)] == [1, 1]


async def test_an_alert_that_somebody_holds_is_not_waited_for(
    conn: Session, outbox: SqlOutbox, database_url: str
) -> None:
    await _kill(outbox)
    other: Session = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.fetch("select from public.outbox where topic = $1 for update", ALERT)
        await conn.execute("set statement_timeout = '3s'")
        await _kill(outbox)
    await other.close()
    assert [alert["count"] for alert in await _alerts(conn)] == [1, 1]


async def test_an_alert_that_dies_makes_no_alert(conn: Session, outbox: SqlOutbox) -> None:
    await _kill(outbox)
    await outbox.fail(await outbox.claim(topics=[ALERT]), "reject", code="HTTP_400")
    assert await _kinds(conn) == [("t", "DEAD", "BAD", 1, 0)]
    await conn.execute(
        "insert into public.outbox_routes (route, topic, destination)"
        " values ('b', 'penstock.*', 'pager')"
    )
    await _kill(outbox, topic="u")
    await conn.fetch("select app.outbox_expand()")
    await outbox.fail(await outbox.claim(topics=["alerts", "b"]), "unknown")
    dead = await conn.fetch("select topic from app.outbox_dead where state = 'HELD'")
    assert [row["topic"] for row in dead] == [ALERT] * 2
    assert len(await _kinds(conn)) == 2


async def test_without_a_route_the_count_waits_for_one(conn: Session, outbox: SqlOutbox) -> None:
    await conn.execute("update public.outbox_routes set enabled = false")
    await _kill(outbox, 2)
    await conn.fetch("select app.outbox_tend_alerts()")
    assert await _alerts(conn) == []
    assert await _kinds(conn) == [("t", "DEAD", "BAD", 2, 2)]
    await conn.execute("update public.outbox_routes set enabled = true")
    await conn.execute("set role penstock_outbox_executor")
    await conn.fetch("select app.outbox_tend_alerts()")
    await conn.execute("reset role")
    (alert,) = await _alerts(conn)
    assert alert["count"] == 2
    assert await _kinds(conn) == [("t", "DEAD", "BAD", 2, 0)]


async def test_who_takes_everything_takes_no_alerts(conn: Session, outbox: SqlOutbox) -> None:
    await conn.execute("update public.outbox_routes set topic = '*'")
    await _kill(outbox)
    assert await _alerts(conn) == []
    assert await _kinds(conn) == [("t", "DEAD", "BAD", 1, 1)]


async def test_used_up_attempts_lost_leases_and_unknown_outcomes_are_alerted(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.policy(max_attempts=1, lease_s=1)
    await outbox.publish(topic="retried")
    await outbox.publish(topic="killed")
    await outbox.publish(topic="unsure")
    await outbox.fail(await outbox.claim(topics=["retried"]), "retry")
    await outbox.fail(await outbox.claim(topics=["unsure"]), "unknown", code="UNKNOWN")
    await conn.execute("set role penstock_outbox_executor")
    await outbox.claim(topics=["killed"])
    await conn.execute("reset role")
    await outbox.advance(timedelta(seconds=2))
    await outbox.tend(sweep=True)
    assert await _kinds(conn) == [
        ("killed", "DEAD", "ZOMBIE_LIMIT", 1, 0),
        ("retried", "DEAD", "MAX_ATTEMPTS", 1, 0),
        ("unsure", "HELD", "UNKNOWN", 1, 0),
    ]
    assert len(await _alerts(conn)) == 3


async def test_what_an_operator_sets_aside_needs_no_alert(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.publish(key="k")
    await conn.fetch("select app.outbox_park(array['k'], 'in the way')")
    assert await _kinds(conn) == []


async def test_a_flood_of_kinds_becomes_one_kind(conn: Session, outbox: SqlOutbox) -> None:
    for number in range(130):
        await _kill(outbox, code=f"CODE_{number}")
    kinds = await _kinds(conn)
    assert len(kinds) == 101
    assert ("*", "DEAD", "CODE_129", 30, 0) in kinds
    assert sum(alert["count"] for alert in await _alerts(conn)) == 130


async def test_a_dead_alert_is_tried_again_for_a_week(conn: Session, outbox: SqlOutbox) -> None:
    await _kill(outbox)
    await outbox.fail(await outbox.claim(topics=[ALERT]), "reject", code="HTTP_500")
    assert await conn.fetchval("select app.outbox_tend_alerts()") == 0
    await outbox.advance(timedelta(minutes=16))
    assert await conn.fetchval("select app.outbox_tend_alerts()") == 1
    items = await outbox.claim(topics=[ALERT])
    assert [item.attempts for item in items] == [1]
    await outbox.fail(items, "reject", code="HTTP_500")
    await outbox.advance(timedelta(days=8))
    assert await conn.fetchval("select app.outbox_tend_alerts()") == 0
    await outbox.advance(timedelta(days=30))
    await conn.fetchval("select app.outbox_tend_alerts()")
    assert await _kinds(conn) == []


async def test_the_dead_letter_log_of_relay_tables_tells_of_the_alert(
    conn: Session, outbox: SqlOutbox
) -> None:
    await conn.execute("insert into payments.outbox_transfers (payload) values ('{}')")
    for _ in range(5):
        assert await conn.fetch("select from relay.dead_letters") == []
        await outbox.tend()
        await outbox.fail(await outbox.claim(topics=["payments.outbox_transfers"]))
    await conn.execute("set role penstock_operator")
    (letter,) = await conn.fetch(
        "select source, retry_count, last_error, moved_at, alerted_at from relay.dead_letters"
    )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.fetch("select payload from relay.dead_letters")
    await conn.execute("reset role")
    assert tuple(letter)[:3] == ("payments.outbox_transfers", 5, "it did not work")
    assert letter["alerted_at"] >= letter["moved_at"]


async def test_a_row_with_several_routes_has_a_letter_for_each_that_died(
    conn: Session, outbox: SqlOutbox
) -> None:
    await conn.execute(
        "insert into public.outbox_routes (route, topic, destination) values"
        " ('one', 'payments.*', 'pager'), ('two', 'payments.*', 'pager')"
    )
    row = await conn.fetchval(
        "insert into payments.outbox_transfers (payload) values ('{}') returning id"
    )
    await conn.fetch("select app.outbox_expand()")
    await outbox.finish(await outbox.claim(topics=["one"]))
    await outbox.fail(await outbox.claim(topics=["two"]), "reject")
    (letter,) = await conn.fetch("select source, id, route from relay.dead_letters")
    assert tuple(letter) == ("payments.outbox_transfers", row, "two")


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kinds=st.lists(st.sampled_from("abc"), min_size=20, max_size=60))
async def test_every_death_is_in_exactly_one_alert_whoever_dies_at_once(
    database_url: str, kinds: list[str]
) -> None:
    sessions = [await asyncpg.connect(database_url) for _ in range(4)]
    first = SqlOutbox(sessions[0])
    await first.conn.execute("delete from public.outbox_alerts; delete from public.outbox")
    await first.conn.execute("delete from public.outbox_archive; delete from public.outbox_routes")
    await first.conn.execute(ROUTE)

    async def kill_some(session: Session, own: list[str]) -> None:
        outbox = SqlOutbox(session)
        for topic in own:
            await outbox.publish(topic=topic)
        items = await outbox.claim(1000, topics=["a", "b", "c"])
        for half in (items[::2], items[1::2]):
            await outbox.fail(half, "reject")
        await outbox.finish(await outbox.claim(topics=[ALERT]))

    try:
        await asyncio.gather(
            *(kill_some(session, kinds[at::4]) for at, session in enumerate(sessions))
        )
        dead = await first.conn.fetchval("select count(*) from app.outbox_dead")
        told = await first.conn.fetchval(
            "select coalesce(sum((payload ->> 'count')::int), 0) from app.outbox_all"
            " where topic = $1",
            ALERT,
        )
        assert (dead, told) == (len(kinds), len(kinds))
    finally:
        for session in sessions:
            await session.close()
