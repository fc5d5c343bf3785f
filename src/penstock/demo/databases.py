"""The demo's own look at both databases, through whatever happens to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic

import asyncpg

from penstock.demo.plan import POOL
from penstock.demo.show import Sample, Show
from penstock.demo.stage import Stage
from penstock.kernel.database import DRIVER_ERRORS
from penstock.kernel.errors import PenstockError

SAMPLE_S = 0.2
FIRST_S = 20.0
HANGING_S = 1.5
_SAMPLE = """
select p.stocked, p.available, p.reserved, p.consumed,
       (select count(*) from pgmq.q_intake_queue) as queue
from public.intake_pool_stats p where p.pool_id = $1
"""
# Blocks inserts, as a long transaction of somebody else would.
_SLOW = "lock table public.confirmed_tickets in share row exclusive mode"
_WAITING = """
select a.usename::text from pg_stat_activity a
where a.datname = current_database() and a.wait_event_type = 'Lock' and a.usename like 'demo%'
"""


class SlowLedger:
    """The ledger while another transaction holds its table."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def busiest(self, held: Callable[[str], int], *, seats: int) -> str:
        """The login that holds most of those whose commit hangs, once workers hold every seat.

        Once one hangs the look is short: commits give up waiting after five seconds.
        """
        conn = await asyncpg.connect(self._stage.ledger_url())
        try:
            deadline = monotonic() + FIRST_S
            while True:
                waiting: dict[str, int] = {
                    row["usename"]: held(row["usename"]) for row in await conn.fetch(_WAITING)
                }
                late = monotonic() > deadline
                if waiting and (late or sum(waiting.values()) >= seats):
                    return max(waiting, key=lambda login: waiting[login])
                if late:
                    break
                if waiting:
                    deadline = min(deadline, monotonic() + HANGING_S)
                await asyncio.sleep(0.02)
        finally:
            await conn.close()
        raise PenstockError("no worker began to commit", todo="run the demo again.")


@asynccontextmanager
async def slow_ledger(stage: Stage) -> AsyncIterator[SlowLedger]:
    """Hold the ledger's table while the block runs."""
    conn = await asyncpg.connect(stage.ledger_url())
    try:
        transaction = conn.transaction()
        await transaction.start()
        await conn.execute(_SLOW)
        yield SlowLedger(stage)
        await transaction.rollback()
    finally:
        conn.terminate()


class Watch:
    """Takes samples of the engine for the screen, and waits for it to come to rest."""

    def __init__(self, stage: Stage, show: Show) -> None:
        self._stage = stage
        self._show = show
        self._conn: asyncpg.Connection[asyncpg.Record] | None = None
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            requests, at = self._show.count("requests"), monotonic()
            await asyncio.sleep(SAMPLE_S)
            rate = (self._show.count("requests") - requests) / (monotonic() - at)
            self._show.rate_history.append(rate)
            await self.look()
            self._show.queue_history.append(self._show.sample.queue)

    async def look(self) -> Sample | None:
        """The pool now; None while the engine does not answer."""
        async with self._looking:
            try:
                if self._conn is None or self._conn.is_closed():
                    self._conn = await asyncpg.connect(self._stage.engine_url(), timeout=2)
                row = await self._conn.fetchrow(_SAMPLE, POOL, timeout=5)
            except DRIVER_ERRORS:
                self._drop()
                return None
        if row is not None:
            self._show.sample = Sample(*row)
        return self._show.sample

    async def drained(self, *, within_s: float = 30.0) -> float:
        """Wait until nothing is reserved or queued; returns how long it took."""
        started = monotonic()
        while monotonic() - started < within_s:
            sample = await self.look()
            if sample is not None and sample.reserved == 0 and sample.queue == 0:
                return monotonic() - started
            await asyncio.sleep(0.05)
        raise PenstockError(
            f"{self._show.sample.reserved} reservations are not confirmed after {within_s:.0f} s",
            todo="run the demo with --keep and look with `penstock doctor`.",
        )

    def _drop(self) -> None:
        if self._conn is not None:
            with suppress(*DRIVER_ERRORS):
                self._conn.terminate()
        self._conn = None

    def close(self) -> None:
        """Let go of the connection."""
        self._drop()
