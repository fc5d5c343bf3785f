"""Relay tables: an insert is an event, and the row shows what became of it."""

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.outbox import SqlOutbox

from penstock.outbox.queue import OutboxQueue

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SMOKE = Path(__file__).with_name("smoke.sql")


@pytest.fixture
async def outbox(conn: Session) -> SqlOutbox:
    return SqlOutbox(conn)


async def _insert(conn: Session, table: str) -> UUID:
    await conn.execute("set role penstock_outbox_ingest")
    row: UUID = await conn.fetchval(
        f"""insert into {table} (payload) values ('{{"id": 1}}') returning id"""
    )
    await conn.execute("reset role")
    return row


async def _row(conn: Session, table: str = "payments.outbox_transfers") -> tuple[object, ...]:
    row = await conn.fetchrow(
        f"select status, sent_at is not null, retry_count, last_error from {table}"
    )
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize(
    "table", ["payments.outbox_transfers", "ledger.outbox_ledger", "public.mine"]
)
async def test_a_row_is_sent_under_its_own_id(conn: Session, outbox: SqlOutbox, table: str) -> None:
    if table == "public.mine":
        await conn.execute("set role penstock_control")
        await conn.execute("select app.outbox_create_relay('public', 'mine', 'for tests')")
        await conn.execute("reset role")
    event = await _insert(conn, table)
    assert await _row(conn, table) == ("PENDING", False, 0, None)
    (item,) = await outbox.claim()
    assert (item.id, item.topic) == (event, table)
    assert await _row(conn, table) == ("PENDING", False, 1, None)
    await outbox.finish([item])
    assert await _row(conn, table) == ("SENT", True, 1, None)


async def test_what_fails_is_tried_five_times_and_then_a_dead_letter(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _insert(conn, "payments.outbox_transfers")
    for attempt in range(1, 6):
        await outbox.tend()
        items = await outbox.claim()
        await outbox.fail(items, delay_s=0)
        assert await _row(conn) == ("FAILED", False, attempt, "it did not work")
    await outbox.tend()
    assert await outbox.claim() == []
    (dead,) = await conn.fetch("select id, topic, error_code from app.outbox_dead")
    assert dead["topic"] == "payments.outbox_transfers"
    await conn.fetch("select app.outbox_replay($1, 'fixed')", [dead["id"]])
    await outbox.finish(await outbox.claim())
    assert await _row(conn) == ("SENT", True, 6, None)


async def test_whoever_claims_a_row_is_told_which_attempt_is_its_last(
    conn: Session, outbox: SqlOutbox
) -> None:
    """Beside an event that has more: a worker tells of a death at the right one."""
    await _insert(conn, "payments.outbox_transfers")
    await outbox.publish(1)
    await outbox.policy(max_attempts=10)
    items = await OutboxQueue().claim(conn, limit=10, owner=uuid4())
    assert {item.topic: item.max_attempts for item in items} == {
        "payments.outbox_transfers": 5,
        "t": 10,
    }


async def _two_routes(conn: Session) -> None:
    await conn.execute(
        """insert into public.outbox_destinations (name, kind) values ('acme', 'http');
           insert into public.outbox_routes (route, topic, destination)
           values ('one', 'payments.*', 'acme'), ('two', 'payments.*', 'acme')"""
    )


async def test_with_several_routes_the_row_follows_all_deliveries(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _two_routes(conn)
    await _insert(conn, "payments.outbox_transfers")
    await conn.fetch("select app.outbox_expand()")
    await outbox.finish(await outbox.claim(topics=["one"]))
    assert await _row(conn) == ("PENDING", False, 1, None)
    for attempt in range(2, 7):
        await outbox.tend()
        await outbox.fail(await outbox.claim(topics=["two"]), delay_s=0)
        assert await _row(conn) == ("FAILED", False, attempt, "it did not work")
    (dead,) = await conn.fetch("select id from app.outbox_dead where topic like 'payments.%'")
    await conn.fetch("select app.outbox_replay($1, 'fixed')", [dead["id"]])
    await outbox.finish(await outbox.claim(topics=["two"]))
    assert await _row(conn) == ("SENT", True, 7, None)


async def test_a_row_is_not_sent_while_one_of_its_deliveries_was_given_up(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _two_routes(conn)
    await _insert(conn, "payments.outbox_transfers")
    await conn.fetch("select app.outbox_expand()")
    await outbox.fail(await outbox.claim(topics=["two"]), "reject")
    (dead,) = await conn.fetch("select id from app.outbox_dead where topic like 'payments.%'")
    await conn.fetch("select app.outbox_discard($1, 'no')", [dead["id"]])
    await outbox.finish(await outbox.claim(topics=["one"]))
    assert (await _row(conn))[0] == "FAILED"
    assert await conn.fetchval("select count(*) from public.outbox") == 0


async def test_a_dispatch_that_did_not_start_does_not_count(
    conn: Session, outbox: SqlOutbox
) -> None:
    await _insert(conn, "payments.outbox_transfers")
    await outbox.release(await outbox.claim())
    assert await _row(conn) == ("PENDING", False, 0, None)


async def test_a_dead_worker_leaves_a_failed_dispatch(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.make_clock_settable()
    await _insert(conn, "payments.outbox_transfers")
    await outbox.claim()
    await outbox.advance(timedelta(hours=1))
    await outbox.tend()
    status, sent, count, error = await _row(conn)
    assert (status, sent, count) == ("FAILED", False, 1)
    assert "lease" in str(error)


async def test_only_what_was_sent_a_week_ago_is_purged(conn: Session, outbox: SqlOutbox) -> None:
    await outbox.make_clock_settable()
    for _ in range(2):
        await _insert(conn, "payments.outbox_transfers")
    await outbox.finish(await outbox.claim(1))
    await outbox.advance(timedelta(days=6))
    assert await conn.fetchval("select app.outbox_purge_relays('0')") == 0
    await outbox.advance(timedelta(days=2))
    assert await conn.fetchval("select app.outbox_purge_relays()") == 1
    assert (await _row(conn))[0] == "PENDING"


async def test_a_further_relay_table_is_as_guarded_as_the_others(conn: Session) -> None:
    await conn.execute("select app.outbox_create_relay('public', 'mine', 'for tests')")
    guards = """
        select c.relrowsecurity, pg_get_userbyid(c.relowner),
               (select array_agg(p.polname || p.polcmd::text order by p.polname)
                from pg_policy p where p.polrelid = c.oid),
               (select array_agg(pg_get_constraintdef(k.oid) order by k.conname)
                from pg_constraint k where k.conrelid = c.oid and k.contype = 'c')
        from pg_class c where c.oid = any($1::text[]::regclass[])"""
    first, further = await conn.fetch(guards, ["payments.outbox_transfers", "public.mine"])
    assert sorted(first[3]) == sorted(further[3])
    assert first[:3] == further[:3]
    assert first["relrowsecurity"]
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute("insert into public.mine (payload, status) values ('{}', 'LOST')")


async def test_names_of_relay_tables_are_checked(conn: Session) -> None:
    for schema, table in (("public; drop", "x"), ("public", "Bad"), ("public", 'a"b')):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await conn.execute("select app.outbox_create_relay($1, $2, 'r')", schema, table)
        assert refused.value.sqlstate == "PN005"


async def test_an_identity_means_one_contact_also_when_two_resolve_it_at_once(
    database_url: str, conn: Session
) -> None:
    tenant = uuid4()
    query = "select app.resolve_identity($1, $2, $3)"
    async with Stage(database_url) as stage:
        first, second = await stage.sessions("first", "second")
        await first.begin()
        contact = await first.value(query, tenant, "email", " Alice@Example.com")
        step = second.start(query, tenant, "email", "alice@example.com ")
        await stage.until_blocked(second, step)
        await first.commit()
        assert (await step.done())[0][0] == contact
    assert await conn.fetchval(query, uuid4(), "email", "alice@example.com") != contact
    assert await conn.fetchval(query, tenant, "external_id", "A") != await conn.fetchval(
        query, tenant, "external_id", "a"
    )


async def test_the_smoke_tests_pass(conn: Session, database_url: str) -> None:
    await conn.execute(SMOKE.read_text("utf-8"))
    psql = shutil.which("psql")
    if psql is not None:
        options = ("-qX", "-v", "ON_ERROR_STOP=1", "-f", str(SMOKE))
        running = await asyncio.create_subprocess_exec(psql, *options, database_url)
        assert await running.wait() == 0
    assert await conn.fetchval("select count(*) from app.outbox_all") == 0
