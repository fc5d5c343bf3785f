"""Receiving: one row per event, whoever sends it how often, and nothing that Postgres cannot hold
stops its neighbours."""

import asyncio
import hashlib
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.inbox import SqlInbox, arrival
from tests.support.interleave import Stage
from tests.support.waiting import until

from penstock.inbox import store
from penstock.inbox.model import SharedBody

HOSTILE = {
    "nul": '{"a": "\\u0000"}',
    "raw nul": '{"a": "\0"}',
    "lone surrogate": '{"a": "\\ud800"}',
    "unencodable": '{"a": "\ud800"}',
    "huge exponent": '{"a": 1e100000000}',
    "not a number": '{"a": NaN}',
    "deep": "[" * 20000,
    "empty": "",
    "no json": "<xml/>",
}


async def test_a_new_event_is_stored_and_ready(inbox: SqlInbox, stripe: UUID) -> None:
    event = arrival(stripe, "evt_1", '{"id": "evt_1"}', kind="charge.paid", signature="t=1,v1=2")
    assert await inbox.receive(event) == ["stored"]
    row = await inbox.row(event.id)
    assert (row["webhook_id"], row["event_id"], row["event_type"]) == (
        stripe,
        "evt_1",
        "charge.paid",
    )
    assert (row["status"], row["attempts"], row["provider"]) == ("pending", 0, "stripe")
    assert (row["raw_body"], row["signature"]) == (b'{"id": "evt_1"}', "t=1,v1=2")


async def test_a_group_is_answered_in_its_own_order(inbox: SqlInbox, stripe: UUID) -> None:
    await inbox.send(stripe, "b")
    answers = await inbox.receive(
        arrival(stripe, "c"),
        arrival(stripe, "b"),
        arrival(stripe, "a"),
        arrival(stripe, "b", '{"n": 2}'),
        arrival(uuid4(), "a"),
        arrival(stripe, "x" * 501),
        arrival(stripe, "a"),
    )
    assert answers == [
        "stored",
        "duplicate",
        "stored",
        "conflicting_duplicate",
        "unknown_source",
        "bad_event_id",
        "duplicate",
    ]


async def test_two_accounts_of_one_provider_do_not_share_event_ids(inbox: SqlInbox) -> None:
    one, two = await inbox.source("one"), await inbox.source("two")
    assert await inbox.receive(arrival(one, "evt"), arrival(two, "evt")) == ["stored"] * 2


async def test_the_same_event_a_hundred_times_at_once_is_one_row(
    inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    pool = await asyncpg.create_pool(database_url, min_size=10, max_size=10)
    assert pool is not None

    async def deliver(number: int) -> list[str]:
        names = ["evt", f"other-{number % 7}"] if number % 2 else [f"other-{number % 7}", "evt"]
        async with pool.acquire() as conn:
            return list(await store.receive_many(conn, [arrival(stripe, n) for n in names]))

    answers = [a for both in await asyncio.gather(*map(deliver, range(100))) for a in both]
    await pool.close()
    assert (answers.count("stored"), answers.count("duplicate")) == (8, 192)
    assert await inbox.conn.fetchval("select count(*) from webhook_events") == 8


@pytest.mark.parametrize("what", list(HOSTILE))
async def test_a_hostile_body_is_kept_raw_and_dead_and_its_neighbours_live(
    inbox: SqlInbox, stripe: UUID, what: str
) -> None:
    hostile = arrival(stripe, "bad", HOSTILE[what])
    before, after = arrival(stripe, "a"), arrival(stripe, "z")
    assert await inbox.receive(before, hostile, after) == ["stored"] * 3
    row = await inbox.row(hostile.id)
    assert (row["status"], row["error_code"]) == ("dead_letter", "payload_unrepresentable")
    assert (row["payload"], row["raw_body"]) == (None, hostile.raw_body)
    assert {item.id for item in await inbox.claim()} == {before.id, after.id}
    assert await inbox.counter("dead_letter", "payload_unrepresentable") == 1


async def test_another_body_under_a_known_id_is_recorded_once_and_dropped(
    inbox: SqlInbox, stripe: UUID
) -> None:
    first = arrival(stripe, "evt")
    assert await inbox.receive(first) == ["stored"]
    other = [arrival(stripe, "evt", '{"n": 2}') for _ in range(3)]
    assert await inbox.receive(*other[:2]) == ["conflicting_duplicate"] * 2
    assert await inbox.receive(other[2]) == ["conflicting_duplicate"]
    assert (await inbox.row(first.id))["raw_body"] == first.raw_body
    query = "select count(*) from audit.audit_logs where operation = 'conflicting_duplicate'"
    assert await inbox.conn.fetchval(query) == 1
    assert await inbox.conn.fetchval("select times from webhook.conflicts") == 3
    assert await inbox.counter("conflict", "conflicting_duplicate") == 3


async def test_an_event_is_known_again_after_its_row_has_gone(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "evt")
    await inbox.finish(await inbox.claim())
    await inbox.advance(timedelta(hours=2))
    archived = await inbox.conn.fetchval("select archived from webhook.inbox_keep()")
    assert (archived, await inbox.state(event)) == (1, "SUCCESS")
    assert await inbox.status("evt") is None
    assert await inbox.receive(arrival(stripe, "evt")) == ["duplicate"]
    assert await inbox.receive(arrival(stripe, "evt", "{}")) == ["conflicting_duplicate"]
    await inbox.conn.execute(
        "insert into webhook_events (webhook_id, event_id, payload) values ($1, 'evt', '{}')",
        stripe,
    )
    assert await inbox.claim() == []


@pytest.mark.parametrize(("signed", "again"), [(True, "stored"), (False, "duplicate")])
async def test_memory_ends_after_thirty_days_only_where_the_time_is_signed(
    inbox: SqlInbox, stripe: UUID, signed: bool, again: str
) -> None:
    await inbox.conn.execute("update webhook_endpoints set timestamp_signed = $1", signed)
    await inbox.send(stripe, "evt")
    await inbox.finish(await inbox.claim())
    for step in (timedelta(hours=2), timedelta(days=29, hours=23), timedelta(hours=2)):
        await inbox.advance(step)
        await inbox.conn.execute("select webhook.inbox_keep()")
        if step.days:
            assert await inbox.receive(arrival(stripe, "evt")) == ["duplicate"]
    assert await inbox.receive(arrival(stripe, "evt")) == [again]


async def test_a_redelivery_while_the_row_moves_to_the_archive_is_a_duplicate(
    inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    await inbox.send(stripe, "evt")
    await inbox.finish(await inbox.claim())
    await inbox.advance(timedelta(hours=2))
    async with Stage(database_url) as stage:
        keeper, door = await stage.sessions("keeper", "door")
        await keeper.begin()
        await keeper.run("select webhook.inbox_keep()")
        late = asyncio.create_task(
            store.receive_many(door.conn, [arrival(stripe, "evt"), arrival(stripe, "new")])
        )
        await until(lambda: stage.is_blocked(door), "the door waits for the keeper")
        await keeper.commit()
        assert await asyncio.wait_for(late, 10) == ["duplicate", "stored"]
    assert [item.event_id for item in await inbox.claim()] == ["new"]


async def test_a_source_with_too_much_waiting_takes_only_what_it_knows(inbox: SqlInbox) -> None:
    small, other = await inbox.source("small", max_backlog=2), await inbox.source("other")
    await inbox.send(small, "a", "b")
    answers = await inbox.receive(arrival(small, "c"), arrival(small, "a"), arrival(other, "c"))
    assert answers == ["over_quota", "duplicate", "stored"]
    await inbox.finish(await inbox.claim())
    assert await inbox.receive(arrival(small, "c")) == ["stored"]


async def test_a_disabled_source_takes_nothing(inbox: SqlInbox) -> None:
    off = await inbox.source("off", enabled=False)
    assert await inbox.receive(arrival(off, "a")) == ["unknown_source"]


async def test_events_of_one_delivery_share_its_body(inbox: SqlInbox, stripe: UUID) -> None:
    delivery = uuid4()
    parts = [arrival(stripe, f"wamid-{n}", f'{{"n": {n}}}', delivery_id=delivery) for n in range(3)]
    taken = await store.receive_many(inbox.conn, parts, [SharedBody(delivery, b"the whole body")])
    assert taken == ["stored"] * 3
    stored = await store.stored_events(inbox.conn, [part.id for part in parts])
    assert {event.raw_body for event in stored} == {b"the whole body"}
    again = [arrival(stripe, f"wamid-{n}", f'{{"n": {n}}}', delivery_id=uuid4()) for n in range(3)]
    await store.receive_many(inbox.conn, again, [SharedBody(again[0].delivery_id or uuid4(), b"x")])
    assert await inbox.conn.fetchval("select count(*) from webhook.bodies") == 1


async def test_the_seeds_plain_insert_is_a_whole_event(inbox: SqlInbox, stripe: UUID) -> None:
    insert = """insert into webhook_events (webhook_id, event_id, payload, status, received_at)
                values ($1, 'evt-1', '{"foo": "bar"}', 'pending', now())
                on conflict (webhook_id, event_id) do nothing returning id"""
    event = await inbox.conn.fetchval(insert, stripe)
    assert await inbox.conn.fetchval(insert, stripe) is None
    row = await inbox.row(event)
    assert row["body_sha256"] == hashlib.sha256(row["raw_body"]).digest()
    assert [item.id for item in await inbox.claim()] == [event]
