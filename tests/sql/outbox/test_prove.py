"""app.outbox_prove: no alarm in any state that is right, and one for a claim without an end."""

from typing import TypeAlias

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

PROVE = "select invariant, subject, detail from app.outbox_prove()"


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    """An outbox whose topic `fan` has two routes."""
    await conn.execute("select app.outbox_put_destination('d', 'stdout', '{}', 'test')")
    for route in ("a", "b"):
        await conn.execute("select app.outbox_put_route($1, 'fan', 'd', 'test')", route)
    return SqlOutbox(conn)


async def _states(conn: Session) -> set[str]:
    return {row["state"] for row in await conn.fetch("select state from app.outbox_all")}


async def test_an_event_behind_another_is_in_a_state(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.publish(2, key="k")
    assert await conn.fetchval("select count(*) from public.outbox where turn is not null") == 1
    assert await conn.fetch(PROVE) == []


async def test_a_fanned_event_is_in_a_state(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.publish(1, topic="fan")
    await outbox.publish(1, topic="fan", key="k")
    await conn.execute("select app.outbox_expand()")
    assert "FANNED" in await _states(conn)
    items = await outbox.claim(topics=["a", "b"])
    await outbox.finish(items[:1])
    await outbox.fail(items[1:2])
    assert await conn.fetch(PROVE) == []


async def test_a_claim_of_a_delivery_without_an_end_is_found(
    conn: Session, outbox: SqlOutbox
) -> None:
    await outbox.publish(1, topic="fan")
    await conn.execute("select app.outbox_expand()")
    (item,) = await outbox.claim(topics=["a"])
    await conn.execute("update public.outbox set lease_epoch = 2 where id = $1", item.id)
    (found,) = await conn.fetch(PROVE)
    assert (found["invariant"], found["subject"]) == ("K5", f"event {item.id}")
