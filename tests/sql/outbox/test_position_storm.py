"""Positions in a storm: producers that dawdle and abort, workers that crash and retry.

A snapshot is pinned all the time and the net from zero is never due, so that nothing but the rules
of watermark, sweep and floor can bring an event back. The same storm without the rules loses some.
"""

import asyncio
import os
import random
from time import monotonic
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support import mutants
from tests.support.history import assert_history
from tests.support.outbox import Connection, SqlOutbox

pytestmark = pytest.mark.slow

STORM_S = 5.0
HOLD_S = 1.5
QUIET_WITHIN_S = 15.0
PUBLISH = "select app.outbox_publish($1, 't', '{}')"
NET_NOT_DUE = """
select setval('penstock.outbox_net', (extract(epoch from clock_timestamp()) * 1000)::bigint);
update penstock.position set sweep_ms = 100 where name = 'outbox';
"""


class Storm:
    """Everything that happens at once, and what came of it."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self._url = url
        self._chance = chance
        self._ends_at = monotonic() + STORM_S
        self.committed: list[UUID] = []
        self.aborted: list[UUID] = []
        self.crashes = 0
        self.retries = 0

    def _goes_on(self) -> bool:
        return monotonic() < self._ends_at

    async def produce(self) -> None:
        """One producer: 3 % of its transactions dawdle, 10 % are undone."""
        conn = await asyncpg.connect(self._url)
        while self._goes_on():
            event = uuid4()
            transaction = conn.transaction()
            await transaction.start()
            await conn.execute(PUBLISH, event)
            if self._chance.random() < 0.03:
                await asyncio.sleep(HOLD_S)
            if self._chance.random() < 0.10:
                await transaction.rollback()
                self.aborted.append(event)
            else:
                await transaction.commit()
                self.committed.append(event)
            await asyncio.sleep(0.002)
        await conn.close()

    async def work(self) -> None:
        """One worker: of its claims 2 % crash after it, 3 % before its commit, 5 % retry."""
        conn = await asyncpg.connect(self._url)
        outbox = SqlOutbox(conn)
        while self._goes_on():
            await outbox.tend()
            luck = self._chance.random()
            if luck < 0.03:
                transaction = conn.transaction()
                await transaction.start()
                await outbox.claim(20)
                await asyncio.sleep(0.05)
                await transaction.rollback()
                continue
            items = await outbox.claim(20)
            if luck < 0.05:
                self.crashes += 1
            elif luck < 0.10:
                self.retries += 1
                await outbox.fail(items, delay_s=self._chance.choice([0.0, 0.1, 3.0]))
            else:
                await outbox.finish(items)
            await asyncio.sleep(0.005)
        await conn.close()

    async def rage(self) -> None:
        """All of it, under a pinned snapshot."""
        forgotten = await asyncpg.connect(self._url)
        await forgotten.execute("begin isolation level repeatable read")
        await forgotten.fetchval("select count(*) from public.outbox")
        await asyncio.gather(*(self.produce() for _ in range(4)), *(self.work() for _ in range(3)))
        forgotten.terminate()


async def _settle(conn: Connection) -> int:
    """Work on without faults; returns how many events nobody finds."""
    outbox = SqlOutbox(conn)
    deadline = monotonic() + QUIET_WITHIN_S
    left = "select count(*) from public.outbox where dead_at is null"
    while monotonic() < deadline and await conn.fetchval(left):
        await outbox.tend()
        await outbox.finish(await outbox.claim(1000))
        await asyncio.sleep(0.01)
        waits = await conn.fetchval("select count(*) from public.outbox where pos is null")
        if not waits and monotonic() > deadline - QUIET_WITHIN_S + 5:
            break
    lost: int = await conn.fetchval(left)
    return lost


async def _storm(url: str, conn: Connection) -> tuple[Storm, int]:
    number = int(os.environ.get("PENSTOCK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"PENSTOCK_TEST_SEED={number}")
    await SqlOutbox(conn).policy(lease_s=1, max_attempts=1000)
    await conn.execute(NET_NOT_DUE)
    storm = Storm(url, random.Random(number))
    await storm.rage()
    return storm, await _settle(conn)


async def test_a_storm_loses_nothing(database_url: str, conn: Connection) -> None:
    storm, lost = await _storm(database_url, conn)
    print(f"{len(storm.committed)} committed, {storm.crashes} crashes, {storm.retries} retries")
    assert lost == 0
    assert len(storm.committed) > 200
    await assert_history(conn, storm.committed, aborted=storm.aborted)


@pytest.mark.parametrize("mutant", ["NO_SWEEP", "FLOOR_FOLLOWS_WATERMARK"])
async def test_the_same_storm_without_the_rule_loses_some(
    database_url: str, conn: Connection, mutant: str
) -> None:
    await conn.execute(getattr(mutants, mutant))
    _, lost = await _storm(database_url, conn)
    assert lost > 0
