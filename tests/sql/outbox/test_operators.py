"""replay, discard, cancel: one audit row for each action and none without, also in races."""

from uuid import UUID

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import SqlOutbox

REPLAY = "select id, audit_id from app.outbox_replay($1, 'fixed')"
DISCARD = "select id, audit_id from app.outbox_discard($1, 'hopeless')"
CANCEL = "select app.outbox_cancel($1, 'withdrawn')"


async def _dead(outbox: SqlOutbox, count: int = 1, verdict: str = "reject") -> list[UUID]:
    ids = await outbox.publish(count)
    await outbox.fail(await outbox.claim(), verdict)
    return ids


async def _audit(conn: "asyncpg.Connection[asyncpg.Record]") -> list[tuple[str, str]]:
    rows = await conn.fetch("select operation, row_data ->> 'id' as id from audit.audit_logs")
    return sorted((row["operation"], row["id"]) for row in rows)


@pytest.mark.parametrize("verdict", ["reject", "unknown"])
async def test_a_replay_starts_a_new_cycle(
    conn: "asyncpg.Connection[asyncpg.Record]", verdict: str
) -> None:
    outbox = SqlOutbox(conn)
    ids = await _dead(outbox, 2, verdict)
    rows = await conn.fetch(REPLAY, ids)
    assert {row["id"] for row in rows} == set(ids)
    assert len({row["audit_id"] for row in rows}) == 2
    items = await outbox.claim()
    assert [(item.attempts, item.epoch) for item in items] == [(1, 2), (1, 2)]
    assert await _audit(conn) == sorted(("replay", str(event)) for event in ids)


async def test_only_the_dead_can_be_replayed_or_discarded(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    ids = await outbox.publish(4)
    ready, _leased, waiting, delivered = ids
    items = {item.id: item for item in await outbox.claim()}
    await outbox.release([items[ready]])
    await outbox.fail([items[waiting]], delay_s=60)
    await outbox.finish([items[delivered]])
    before = [await outbox.state(event) for event in ids]
    assert before == ["READY", "LEASED", "WAITING", "DELIVERED"]
    for query in (REPLAY, DISCARD):
        assert await conn.fetch(query, ids) == []
    assert [await outbox.state(event) for event in ids] == before
    assert await _audit(conn) == []


async def test_a_discard_ends_in_the_archive(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    outbox = SqlOutbox(conn)
    ids = await _dead(outbox, 2)
    assert {row["id"] for row in await conn.fetch(DISCARD, ids)} == set(ids)
    assert await conn.fetch(DISCARD, ids) == []
    assert [await outbox.state(event) for event in ids] == ["DISCARDED", "DISCARDED"]
    assert len(await _audit(conn)) == 2


async def test_a_cancel_withdraws_what_is_not_in_flight(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    leased, ready = await outbox.publish(2)
    await outbox.claim(1)
    assert await conn.fetchval(CANCEL, ready)
    assert not await conn.fetchval(CANCEL, ready)
    assert not await conn.fetchval(CANCEL, leased)
    assert await outbox.state(ready) == "CANCELLED"
    assert await outbox.state(leased) == "LEASED"
    assert await _audit(conn) == [("cancel", str(ready))]


@pytest.mark.parametrize("query", [REPLAY, DISCARD, CANCEL])
async def test_an_action_without_a_reason_does_nothing(
    conn: "asyncpg.Connection[asyncpg.Record]", query: str
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await _dead(outbox) if query != CANCEL else await outbox.publish(1)
    before = await outbox.state(event)
    for word in ("fixed", "hopeless", "withdrawn"):
        query = query.replace(f"'{word}'", "' '")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch(query, event if "cancel" in query else [event])
    assert refused.value.sqlstate == "PN205"
    assert await outbox.state(event) == before


@pytest.mark.parametrize(
    ("first", "second"),
    [(REPLAY, REPLAY), (REPLAY, DISCARD), (DISCARD, REPLAY), (DISCARD, DISCARD)],
)
async def test_of_two_operators_at_once_one_acts(
    database_url: str,
    conn: "asyncpg.Connection[asyncpg.Record]",
    first: str,
    second: str,
) -> None:
    outbox = SqlOutbox(conn)
    ids = await _dead(outbox, 3)
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        assert len(await ann.run(first, ids)) == 3
        assert await bob.run(second, ids) == [], "rows in another's hands are not waited for"
        await ann.commit()
        again = await bob.run(second, ids)
    assert again == []
    assert len(await _audit(conn)) == 3
    row = await conn.fetchrow("select count(*), max(replay_count) from public.outbox")
    assert row is not None
    assert tuple(row) == ((3, 1) if first == REPLAY else (0, None))


async def test_an_undone_replay_leaves_no_audit_row(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await _dead(outbox)
    async with Stage(database_url) as stage:
        ann = await stage.session("ann")
        await ann.begin()
        await ann.run(REPLAY, [event])
        await ann.rollback()
    assert await outbox.state(event) == "DEAD"
    assert await _audit(conn) == []


async def test_a_claim_and_a_cancel_of_one_row_exclude_each_other(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    outbox = SqlOutbox(conn)
    (event,) = await outbox.publish(1)
    async with Stage(database_url) as stage:
        worker, user = await stage.sessions("worker", "user")
        await worker.begin()
        assert len(await worker.run("select id from app.outbox_claim(1, gen_random_uuid())")) == 1
        assert not await user.value(CANCEL, event)
        await worker.rollback()
        await user.begin()
        assert await user.value(CANCEL, event)
        assert await worker.run("select id from app.outbox_claim(1, gen_random_uuid())") == []
        await user.commit()
    assert await outbox.state(event) == "CANCELLED"


async def test_more_than_a_thousand_at_once_are_refused(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    for query in (REPLAY, DISCARD):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await conn.fetch(query, [UUID(int=number) for number in range(1001)])
        assert refused.value.sqlstate == "PN005"


async def test_the_kernels_verbs_reach_the_outbox(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    first, second = await _dead(outbox, 2)
    await conn.fetch("select * from penstock.replay('outbox', array[$1::uuid], 'r', 'ann')", first)
    await conn.fetch("select * from penstock.discard('outbox', array[$1::uuid], 'd')", second)
    assert await outbox.state(first) == "READY"
    assert await outbox.state(second) == "DISCARDED"
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch("select * from penstock.replay('nothing', $1, 'r')", [first])
    assert refused.value.sqlstate == "PN011"
