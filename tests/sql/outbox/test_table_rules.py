"""What the table itself refuses, and who may do what to it."""

import json
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

STATES = ("pos", "processing_token", "next_attempt_at", "dead_at", "held_at")
VALUES = {
    "pos": "1",
    "processing_token": "gen_random_uuid()",
    "next_attempt_at": "now()",
    "dead_at": "now()",
    "held_at": "now()",
}


def _settings(*states: str) -> str:
    parts = [f"{name} = {VALUES[name] if name in states else 'null'}" for name in STATES]
    parts.append(f"lease_expires_at = {'now()' if 'processing_token' in states else 'null'}")
    return ", ".join(parts)


@pytest.mark.parametrize("states", [(), *((a, b) for a in STATES for b in STATES if a < b)])
async def test_a_row_is_in_exactly_one_state(
    conn: "asyncpg.Connection[asyncpg.Record]", states: tuple[str, ...]
) -> None:
    await SqlOutbox(conn).publish(1)
    with pytest.raises(asyncpg.CheckViolationError, match="outbox_one_state"):
        await conn.execute(f"update public.outbox set {_settings(*states)}")
    for state in STATES:
        await conn.execute(f"update public.outbox set {_settings(state)}")


async def test_a_lease_is_whole_or_absent(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    outbox = SqlOutbox(conn)
    await outbox.publish(1)
    with pytest.raises(asyncpg.CheckViolationError, match="outbox_lease_whole"):
        await conn.execute("update public.outbox set lease_expires_at = now()")
    await outbox.claim()
    with pytest.raises(asyncpg.CheckViolationError, match="outbox_lease_whole"):
        await conn.execute("update public.outbox set lease_expires_at = null")


async def test_no_business_table_is_unlogged(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    unlogged = await conn.fetch(
        "select oid::regclass::text from pg_class where relpersistence = 'u'"
        " and relnamespace in ('public'::regnamespace, 'penstock'::regnamespace,"
        " 'audit'::regnamespace, 'app'::regnamespace)"
    )
    assert unlogged == []


async def test_publishing_and_the_business_change_are_one_transaction(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    transaction = conn.transaction()
    await transaction.start()
    await outbox.publish(3)
    await transaction.rollback()
    assert await outbox.claim() == []
    async with conn.transaction():
        await outbox.publish(2)
    assert len(await outbox.claim()) == 2


@pytest.mark.parametrize(
    ("topic", "payload"),
    [("", "{}"), ("x" * 201, "{}"), (None, "{}"), ("t", None), ("t", f'"{"x" * 1_100_000}"')],
)
async def test_what_cannot_be_published_is_refused(
    conn: "asyncpg.Connection[asyncpg.Record]", topic: str | None, payload: str | None
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute("select app.outbox_publish(null, $1, $2::jsonb)", topic, payload)
    assert refused.value.sqlstate == "PN401"


@pytest.mark.parametrize(
    "insert",
    [
        "insert into public.outbox (topic, payload) values ('t', $1)",
        "insert into payments.outbox_transfers (payload) values ($1)",
        "insert into ledger.outbox_ledger (payload, ordering_key) values ($1, 'k')",
    ],
    ids=["outbox", "relay", "relay, keyed"],
)
async def test_what_is_too_large_is_no_event_however_it_is_written(
    conn: "asyncpg.Connection[asyncpg.Record]", insert: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="outbox_payload_size"):
        await conn.execute(insert, json.dumps("x" * 1_100_000))
    # Not by what it takes on disk: a value of one letter is compressed to next to nothing.
    await conn.execute(insert, json.dumps("x" * 1_000_000))
    outbox = SqlOutbox(conn)
    assert await outbox.finish(await outbox.claim()) == []


async def test_an_id_is_published_once(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    event = uuid4()
    publish = "select app.outbox_publish($1, 't', '{}')"
    assert await conn.fetchval(publish, event) == event
    with pytest.raises(asyncpg.UniqueViolationError):
        await conn.execute(publish, event)


async def test_publish_many_keeps_the_order_given(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    ids = [uuid4() for _ in range(50)]
    events = json.dumps([[str(event), {}] for event in ids])
    count = await conn.fetchval("select app.outbox_publish_many('t', $1)", events)
    assert count == 50
    assert [item.id for item in await outbox.claim()] == ids


@pytest.mark.parametrize(
    ("topic", "events", "key"),
    [
        ("", "[[null, {}]]", None),
        (None, "[[null, {}]]", None),
        ("t", "[[null, {}], [null]]", None),
        ("t", '[{"payload": 1}]', None),
        ("t", json.dumps([[None, list(range(300_000))]]), None),
        ("t", "[[null, {}]]", ""),
    ],
    ids=["empty topic", "no topic", "no payload", "no pair", "too large", "empty key"],
)
async def test_publish_many_refuses_what_publish_refuses(
    conn: "asyncpg.Connection[asyncpg.Record]", topic: str | None, events: str, key: str | None
) -> None:
    query = "select app.outbox_publish_many($1, $2, p_ordering_key => $3)"
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(query, topic, events, key)
    assert refused.value.sqlstate == "PN401"
    assert await conn.fetchval("select count(*) from public.outbox") == 0


PRODUCER_MAY = [
    "insert into public.outbox (topic, payload) values ('t', '{}')",
    "select app.outbox_publish(null, 't', '{}')",
    "select app.outbox_cancel(gen_random_uuid(), 'mistake')",
]
PRODUCER_MAY_NOT = [
    "insert into public.outbox (topic, payload, attempts) values ('t', '{}', 5)",
    "insert into public.outbox (topic, payload, pos) values ('t', '{}', 1)",
    "insert into public.outbox (topic, payload, processing_token) "
    "values ('t', '{}', gen_random_uuid())",
    "select * from public.outbox",
    "update public.outbox set topic = 'x'",
    "delete from public.outbox",
    "truncate public.outbox",
    "select * from public.outbox_archive",
    "select * from app.outbox_claim(1, gen_random_uuid())",
    "select * from app.outbox_finish('{1}', '{}', '{}')",
    "select app.outbox_mark_delivered(gen_random_uuid(), '{}')",
    "select * from app.outbox_replay('{}', 'r')",
    "select setval('penstock.outbox_wm', 99)",
    "select setval('penstock.outbox_next', 99)",
    "select app.outbox_archive_rows('{1}', null, 'CANCELLED')",
]
WORKER_MAY_NOT = [
    "select * from public.outbox",
    "insert into public.outbox (topic, payload) values ('t', '{}')",
    "update public.outbox set topic = 'x'",
    "select * from app.outbox_replay('{}', 'r')",
    "select * from app.outbox_discard('{}', 'r')",
    "select app.outbox_archive_rows('{1}', null, 'DISCARDED')",
    "select * from app.outbox_refused('{}', '{}', '{}', 'done', null)",
    "select penstock.end_sweep('outbox', null)",
    "insert into audit.audit_logs (operation, table_name, reason) values ('a', 'b', 'c')",
]
WORKER_MAY = [
    "select * from app.outbox_claim(1, gen_random_uuid())",
    "select * from app.outbox_tend()",
    "select app.outbox_ready()",
    "select * from app.outbox_extend('{}', '{}')",
    "select * from penstock.policy('outbox')",
    "select app.outbox_partitions()",
]


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("penstock_outbox_ingest", PRODUCER_MAY, PRODUCER_MAY_NOT),
        ("penstock_outbox_executor", WORKER_MAY, WORKER_MAY_NOT),
    ],
)
async def test_a_role_may_do_its_part_and_nothing_else(
    conn: "asyncpg.Connection[asyncpg.Record]", role: str, may: list[str], may_not: list[str]
) -> None:
    await conn.execute(f"set role {role}")
    for statement in may:
        await conn.execute(statement)
    for statement in may_not:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute(statement)


async def test_what_a_producer_inserts_by_plain_sql_is_delivered(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    event = UUID(int=7)
    await conn.execute("set role penstock_outbox_ingest")
    await conn.execute(
        "insert into public.outbox (id, topic, payload) values ($1, 't', '{}')", event
    )
    await conn.execute("set role penstock_outbox_executor")
    outbox = SqlOutbox(conn)
    items = await outbox.claim()
    assert [item.id for item in items] == [event]
    assert await outbox.finish(items) == []
