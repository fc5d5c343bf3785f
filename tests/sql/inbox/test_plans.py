"""The plans of the hot statements do not depend on history, statistics or a large backlog."""

from uuid import UUID

import asyncpg
import pytest
from tests.support.inbox import SqlInbox, arrival

FILL = """
insert into webhook_events (webhook_id, event_id, event_type, provider, raw_body, payload,
    body_sha256, status, pos, processed_at)
select $1, 'done-' || n, 't', 'stripe', '{}', '{}', sha256(n::text::bytea), 'success', null,
    penstock.clock()
from generate_series(1, 20000) n
"""
READY = """
insert into webhook_events (webhook_id, event_id, event_type, payload)
select $1, 'ready-' || n, 'kind.' || n % 10, '{}' from generate_series(1, $2::int) n
"""


async def buffers(inbox: SqlInbox, query: str, *args: object) -> int:
    """The pages that a statement touched, its functions included."""
    plan = await inbox.conn.fetch(f"explain (analyze, buffers, costs off) {query}", *args)
    lines = [row[0] for row in plan]
    found = next(line for line in lines if "Buffers:" in line)
    return sum(int(part.split("=")[1]) for part in found.split() if part.startswith("hit="))


@pytest.fixture
async def busy(inbox: SqlInbox, stripe: UUID) -> UUID:
    """Twenty thousand finished events, in a session whose plans were made on an empty table."""
    first = arrival(stripe, "first")
    for _ in range(7):
        await inbox.receive(first)
    await inbox.finish(await inbox.claim())
    await inbox.conn.execute(FILL, stripe)
    await inbox.conn.execute(READY, stripe, 2000)
    return stripe


async def test_a_claim_reads_no_finished_events(inbox: SqlInbox, busy: UUID) -> None:
    await inbox.claim(1)  # housekeeping first
    query = "select * from webhook.inbox_claim(10, gen_random_uuid())"
    assert await buffers(inbox, query) < 700


async def test_a_claim_by_pattern_stops_when_it_has_enough(inbox: SqlInbox, busy: UUID) -> None:
    await inbox.claim(1)
    query = """select * from webhook.inbox_claim(10, gen_random_uuid(), null, array['stripe'],
               array['kind.%'], array[false])"""
    assert await buffers(inbox, query) < 700


async def test_finishing_and_receiving_go_by_their_keys(inbox: SqlInbox, busy: UUID) -> None:
    (item,) = await inbox.claim(1)
    query = f"select webhook.inbox_finish(array['{item.id}'::uuid], array['{item.token}'::uuid])"
    assert await buffers(inbox, query) < 200
    one = f"""select * from webhook.receive(array[gen_random_uuid()], array['{busy}'::uuid],
        array['evt'], array['t'], array['\\x7b7d'::bytea], array['{{}}'], array[null::text],
        array['{{}}'], array[sha256('x')], array['application/json'], array[null::uuid])"""
    assert await buffers(inbox, one) < 400
    assert await buffers(inbox, one) < 400  # now it is a conflicting duplicate


async def test_a_claim_stays_cheap_while_a_snapshot_is_held_open(
    inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    holder = await asyncpg.connect(database_url)
    await holder.execute("begin isolation level repeatable read")
    await holder.fetchval("select count(*) from webhook_events")
    await inbox.conn.execute(READY, stripe, 3000)
    while items := await inbox.claim(500):
        await inbox.finish(items)
    await inbox.tend(sweep=True)
    await inbox.conn.execute(READY.replace("ready-", "later-"), stripe, 10)
    query = "select * from webhook.inbox_claim(10, gen_random_uuid())"
    assert await buffers(inbox, query) < 700
    await holder.close()
