"""Dedupe keys: one fact, one event, however often and from wherever it is published."""

from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PUBLISH = """select app.outbox_publish(null, $1, $2::jsonb, p_tenant => $3,
             p_dedupe_key => 'paid-42')"""


async def _publish(
    conn: Session, payload: str = '{"a": 1}', *, topic: str = "t", tenant: UUID | None = None
) -> UUID:
    event: UUID = await conn.fetchval(PUBLISH, topic, payload, tenant)
    return event


async def _count(conn: Session) -> int:
    count: int = await conn.fetchval("select count(*) from app.outbox_all")
    return count


async def test_the_same_fact_is_one_event_even_after_its_delivery(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    first = await _publish(conn)
    assert await _publish(conn, '{ "a":1 }') == first
    await outbox.finish(await outbox.claim())
    assert await _publish(conn) == first
    assert await _count(conn) == 1


async def test_an_id_of_ones_own_makes_no_difference(conn: Session) -> None:
    outbox = SqlOutbox(conn)
    event = uuid4()
    for _ in range(2):
        query = "select app.outbox_publish($1, 't', '{}', p_dedupe_key => 'k')"
        assert await conn.fetchval(query, event) == event
        await outbox.finish(await outbox.claim())
    assert await _count(conn) == 1


async def test_other_content_is_refused(conn: Session) -> None:
    first = await _publish(conn)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await _publish(conn, '{"a": 2}')
    assert refused.value.sqlstate == "PN402"
    assert str(first) in (refused.value.detail or "")
    assert await _count(conn) == 1


async def test_topics_and_tenants_have_keys_of_their_own(conn: Session) -> None:
    one, two = uuid4(), uuid4()
    events = {
        await _publish(conn),
        await _publish(conn, topic="u"),
        await _publish(conn, '{"a": 2}', tenant=one),
        await _publish(conn, '{"a": 3}', tenant=two),
    }
    assert len(events) == 4
    assert await _publish(conn, '{"a": 3}', tenant=two) in events


async def test_an_undone_publication_leaves_its_key_free(conn: Session) -> None:
    transaction = conn.transaction()
    await transaction.start()
    undone = await _publish(conn)
    await transaction.rollback()
    assert await _publish(conn, '{"a": 2}') != undone


@pytest.mark.parametrize("commits", [True, False])
async def test_two_at_once_are_one_event(database_url: str, conn: Session, commits: bool) -> None:
    async with Stage(database_url) as stage:
        first, second = await stage.sessions("first", "second")
        await first.begin()
        event = await first.value(PUBLISH, "t", "{}", None)
        step = second.start(PUBLISH, "t", "{}", None)
        await stage.until_blocked(second, step)
        await (first.commit() if commits else first.rollback())
        ((other,),) = await step.done()
    assert (other == event) is commits
    assert await _count(conn) == 1


async def test_keys_are_forgotten_after_a_month(conn: Session) -> None:
    first = await _publish(conn)
    purge = "select app.outbox_purge_dedupe()"
    await conn.execute("update public.outbox_dedupe set created_at = now() - interval '29 days'")
    assert await conn.fetchval(purge) == 0
    await conn.execute("update public.outbox_dedupe set created_at = now() - interval '31 days'")
    assert await conn.fetchval(purge) == 1
    assert await _publish(conn, '{"a": 2}') != first


async def test_a_key_has_a_bounded_length(conn: Session) -> None:
    for key in ("", "x" * 201):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await conn.execute(
                "select app.outbox_publish(null, 't', '{}', p_dedupe_key => $1)", key
            )
        assert refused.value.sqlstate == "PN401"
