"""pause_target, resume_target, paused, is_paused."""

from datetime import timedelta

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(3)
    await conn.execute("select penstock.pause_target('outbox', 'broker down')")
    assert await outbox.claim() == []
    await conn.execute("select penstock.resume_target('outbox', 'broker back')")
    assert len(await outbox.claim()) == 3
    operations = await conn.fetch("select operation, reason from audit.audit_logs order by at")
    assert [tuple(row) for row in operations] == [
        ("pause", "broker down"),
        ("resume", "broker back"),
    ]


async def test_a_paused_topic_leaves_the_others_alone(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(2, topic="orders.paid")
    await outbox.publish(2, topic="orders.sent")
    await conn.execute("select penstock.pause_target('topic/orders.paid', 'poison')")
    assert await conn.fetchval("select penstock.paused('topic')") == ["orders.paid"]
    assert {item.topic for item in await outbox.claim()} == {"orders.sent"}


async def test_a_pause_ends_by_itself_when_its_time_is_up(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.publish(1)
    await conn.execute("select penstock.pause_target('outbox', 'a while', interval '10 minutes')")
    await outbox.advance(timedelta(minutes=9))
    assert await conn.fetchval("select penstock.is_paused('outbox')")
    await outbox.advance(timedelta(minutes=2))
    assert not await conn.fetchval("select penstock.is_paused('outbox')")
    assert len(await outbox.claim()) == 1


async def test_a_second_pause_replaces_the_first(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await conn.execute("select penstock.pause_target('outbox', 'a', interval '1 hour')")
    await conn.execute("select penstock.pause_target('outbox', 'b', null, 'ann')")
    row = await conn.fetchrow("select reason, paused_by, until_at from penstock.pause")
    assert row is not None
    assert tuple(row) == ("b", "ann", None)


async def test_a_kind_matches_itself_only(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    await conn.execute(
        "insert into penstock.pause (target, reason, paused_by) values ('topic_x/a', 'r', 'ann')"
    )
    await conn.execute("select penstock.pause_target('topic/b', 'r')")
    assert await conn.fetchval("select penstock.paused('topic')") == ["b"]
    assert await conn.fetchval("select penstock.paused('topicyx')") == []


@pytest.mark.parametrize(
    "target", ["", "Outbox", "topic/", "a b", "/x", "toppic/x", "tenant/not-a-uuid"]
)
async def test_a_target_that_no_claim_would_read_is_refused(
    conn: "asyncpg.Connection[asyncpg.Record]", target: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute("select penstock.pause_target($1, 'r')", target)
    assert refused.value.sqlstate == "PN005"


async def test_resuming_what_is_not_paused_is_an_error_without_an_audit_row(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute("select penstock.resume_target('outbox', 'r')")
    assert refused.value.sqlstate == "PN011"
    assert await conn.fetchval("select count(*) from audit.audit_logs") == 0
