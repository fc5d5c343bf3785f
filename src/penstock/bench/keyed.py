"""A backlog with ordering keys: how quickly it drains, and whether every key kept its order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

import asyncpg

from penstock.application import Penstock
from penstock.bench.kernel import PAYLOAD
from penstock.kernel.event import Event

TOPIC = "bench.keyed"
KEYS = 100_000
LATE_KEYS = 2
LATE_PRODUCERS = 4
LATE_S = 0.02
# Few enough keys in one transaction for the server's table of locks.
FILL = 2_000
FEED_AHEAD = 20_000

_FILL = """
insert into public.outbox (topic, payload, ordering_key)
select $1, $2::text::jsonb,
       case when n % 3 = 0 then 'hot' else 'key-' || (n * 7919) % $5::bigint end
from generate_series($3::bigint, $4::bigint) as n
"""
_PUBLISH = "select app.outbox_publish(null, $1, $2::text::jsonb, p_ordering_key => $3)"
_OUT_OF_ORDER = """
select count(*) from (
    select a.seq, lag(a.seq) over (partition by a.ordering_key order by s.place) as before
    from unnest($1::uuid[]) with ordinality as s (id, place)
    join public.outbox_archive a on a.id = s.id
) as x where x.seq < x.before
"""
LATE_SEEN = "select count(*) from public.outbox_archive where ordering_key like 'late-%'"

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def fill(conn: Connection, events: range) -> None:
    """Publish these numbers: every third event has one and the same key."""
    for start in range(events.start, events.stop, FILL):
        last = min(start + FILL, events.stop) - 1
        await conn.execute(_FILL, TOPIC, PAYLOAD, start, last, KEYS)


@dataclass(slots=True)
class Seen:
    """What the handler saw, in its order."""

    ids: list[UUID] = field(default_factory=list)

    async def out_of_order(self, conn: Connection) -> int:
        """How many events came after one of the same key with a higher number."""
        count: int = await conn.fetchval(_OUT_OF_ORDER, self.ids)
        return count


def application(url: str, seen: Seen) -> Penstock:
    """One handler that does nothing but remember the order."""
    ps = Penstock(url)

    async def note(event: Event[dict[str, object]]) -> None:
        seen.ids.append(event.id)

    ps.outbox.topic(TOPIC, dict[str, object]).on(concurrency=8)(note)
    return ps


@asynccontextmanager
async def late_producers(url: str) -> AsyncIterator[None]:
    """Producers that share keys and commit some time after they published, while the block runs."""
    ending = asyncio.Event()
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for number in range(LATE_PRODUCERS):
            conn = await asyncpg.connect(url)
            stack.push_async_callback(conn.close)
            key = f"late-{number % LATE_KEYS}"
            await _publish_late(conn, key)  # first in the backlog, so that it is drained for sure
            tasks.append(asyncio.create_task(_produce_late(conn, key, ending)))
        try:
            yield
        finally:
            ending.set()
            await asyncio.gather(*tasks)


async def _produce_late(conn: Connection, key: str, ending: asyncio.Event) -> None:
    while not ending.is_set():
        await _publish_late(conn, key)


async def _publish_late(conn: Connection, key: str) -> None:
    async with conn.transaction():
        for _ in range(2):
            await conn.execute(_PUBLISH, TOPIC, PAYLOAD, key)
            await asyncio.sleep(LATE_S)


async def feed(url: str) -> None:
    """Keep enough events ready, until cancelled. The one key's line grows all the while."""
    conn = await asyncpg.connect(url)
    start = 0
    try:
        while True:
            ahead = await conn.fetchval(
                "select pg_sequence_last_value('penstock.outbox_next')"
                " - pg_sequence_last_value('penstock.outbox_wm')"
            )
            if ahead > FEED_AHEAD:
                await asyncio.sleep(0.01)
                continue
            await fill(conn, range(start, start + FILL))
            start += FILL
    finally:
        await conn.close()
