"""Retention: the jobs keep up with any producer, in short transactions, and take nothing early."""

from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

from penstock.outbox import store

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SENT = """
insert into payments.outbox_transfers (payload, status, sent_at, created_at)
select '{}', 'SENT', penstock.clock() - $1::interval, penstock.clock() - $1::interval
from generate_series(1, $2::integer)
"""
OPEN = """
insert into payments.outbox_transfers (payload, status, created_at, retry_count)
select '{}', s, penstock.clock() - interval '90 days', 5 from unnest(array['FAILED']) s
"""


@pytest.mark.parametrize("count", [9_999, 10_000, 25_000])
async def test_one_run_deletes_every_row_past_its_week(conn: Session, count: int) -> None:
    await conn.execute(SENT, timedelta(days=7, minutes=1), count)
    await conn.execute(SENT, timedelta(days=6, hours=23, minutes=59), 7)
    await conn.execute(OPEN)
    await store.purge_relays(conn)
    rows = await conn.fetch("select status, count(*) from payments.outbox_transfers group by 1")
    assert dict(tuple(row) for row in rows) == {"SENT": 7, "FAILED": 1}


async def test_further_relay_tables_are_purged_as_well(conn: Session) -> None:
    await conn.execute("select app.outbox_create_relay('public', 'mine', 'for tests')")
    for table in ("public.mine", "ledger.outbox_ledger"):
        await conn.execute(SENT.replace("payments.outbox_transfers", table), timedelta(days=8), 3)
    await store.purge_relays(conn)
    assert await conn.fetchval("select count(*) from public.mine") == 0
    assert await conn.fetchval("select count(*) from ledger.outbox_ledger") == 0


async def test_one_run_forgets_every_dedupe_key_past_its_month(conn: Session) -> None:
    await conn.execute(
        """insert into public.outbox_dedupe (dedupe_key, topic, event_id, digest, created_at)
           select 'k' || n, 't', gen_random_uuid(), '', penstock.clock() - interval '31 days'
           from generate_series(1, 20500) n"""
    )
    await SqlOutbox(conn).publish()
    await conn.execute("select app.outbox_publish(null, 't', '{}', p_dedupe_key => 'young')")
    await store.purge_dedupe(conn)
    rows = await conn.fetch("select dedupe_key from public.outbox_dedupe")
    assert [row["dedupe_key"] for row in rows] == ["young"]
