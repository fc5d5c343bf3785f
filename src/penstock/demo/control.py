"""The control run: the first design of the sale, taken at its word, under the same faults.

What it shows is counted from what was answered and what the ledger holds, by the same rules as the
sale itself. Time is shortened: a lease of nothing and a reaper that waits for nothing stand for
minutes of outage.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg

from penstock.demo.promises import Promise, Verdict, judge
from penstock.demo.stage import NAIVE_DB, Stage
from penstock.kernel.database import DRIVER_ERRORS

POOL = "naive_concert"
SEATS = 40
SHARE = 8  # seats that each fault meets
LATE_BUYERS = 10
MAX_RETRIES = 3
BATCH = 100

_READ = "select msg_id, read_ct, message::text from public.intake_queue_read(0, $1)"
_CONSUME = (
    "update public.inventory_slots set status = 'CONSUMED'"
    " where id = ($1::jsonb ->> 'resource_id')::uuid and status = 'RESERVED'"
)
_CLAIM = "select public.claim_resource_and_queue($1, $2)"
_GIVE_UP = "select public.intake_route_to_dlq($1, $2::jsonb, $3)"
_ACKNOWLEDGE = "select public.intake_queue_delete($1)"
_FINALIZE = "select public.finalize_transaction($1::jsonb)"
_SEED = "insert into public.inventory_slots (pool_id) select $1 from generate_series(1, $2)"


Row: TypeAlias = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class WorkerKilled(Exception):
    """The control run's worker is cut off after the ledger's commit and before its own."""


@dataclass(slots=True)
class Control:
    """One control run; its databases are the stage's, its names its own."""

    stage: Stage
    say: Callable[[str], None]
    promises: list[Promise] = field(default_factory=list)

    async def run(self) -> Verdict:
        """Sell, break, sell again; returns what was promised against what there is."""
        await self._seed()
        self.say("control run: double clicks, killed worker, ledger outage, dead letters")
        await self._claims(*(f"early-{click // 2}" for click in range(SEATS)))
        for _ in range(MAX_RETRIES - 1):
            with suppress(WorkerKilled):
                await self._bridge(SHARE, killed=True)
        await asyncio.to_thread(self.stage.ledger.stop)
        for _ in range(MAX_RETRIES - 1):
            await self._bridge(2 * SHARE)
        await asyncio.to_thread(self.stage.ledger.start)
        await self._drain()
        self.say("control run: reaper, resale, replay")
        await self._operate("select public.reap_orphaned_slots(interval '0')")
        await self._claims(*(f"second-{number}" for number in range(2 * SHARE)))
        await self._drain()
        await self._operate("select public.replay_dead_letters()")
        await self._drain()
        self.say("control run: crash of the engine's server")
        await asyncio.to_thread(self.stage.engine.kill)
        await asyncio.to_thread(self.stage.engine.start)
        await self._seed()
        await self._claims(*(f"late-{number}" for number in range(LATE_BUYERS)))
        await self._drain()
        return judge(self.promises, await self._tickets(), seats=SEATS, wanted_each=1)

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[Connection]:
        conn = await asyncpg.connect(self.stage.engine_url(database=NAIVE_DB))
        try:
            yield conn
        finally:
            conn.terminate()

    async def _seed(self) -> None:
        """What an operator does who finds no seats: run the seed file."""
        async with self._engine() as conn:
            if not await conn.fetchval("select count(*) from public.inventory_slots"):
                await conn.execute(_SEED, POOL, SEATS)

    async def _claims(self, *users: str) -> None:
        """Let users click in order; whoever is named twice clicks twice."""
        async with self._engine() as conn:
            for user in users:
                seat = await conn.fetchval(_CLAIM, POOL, user)
                if seat is not None:
                    self.promises.append(Promise(user, str(seat)))

    async def _operate(self, statement: str) -> None:
        async with self._engine() as conn:
            await conn.execute(statement)

    async def _drain(self) -> None:
        while await self._bridge(BATCH):
            pass

    async def _bridge(self, batch: int, *, killed: bool = False) -> int:
        """One run of the worker as first designed: read, commit, consume, acknowledge at the end.

        `killed` cuts it off when the ledger has committed and nothing else has happened.
        """
        async with self._engine() as engine:
            messages = await engine.fetch(_READ, batch)
            tired = [one for one in messages if one["read_ct"] >= MAX_RETRIES]
            for one in tired:
                await engine.execute(_GIVE_UP, one["msg_id"], one["message"], one["read_ct"])
            done = await self._finalize([one for one in messages if one not in tired])
            if killed:
                raise WorkerKilled
            for one in done:
                await engine.execute(_CONSUME, one["message"])
            await engine.execute(_ACKNOWLEDGE, [one["msg_id"] for one in done])
            return len(messages)

    async def _finalize(self, messages: Sequence[Row]) -> Sequence[Row]:
        """Commit in the ledger; returns what went through. A ledger that is away takes nothing."""
        try:
            ledger = await asyncpg.connect(self.stage.ledger_url(database=NAIVE_DB), timeout=2)
        except DRIVER_ERRORS:
            return ()
        try:
            for one in messages:
                await ledger.execute(_FINALIZE, one["message"])
        finally:
            await ledger.close()
        return messages

    async def _tickets(self) -> list[Promise]:
        conn = await asyncpg.connect(self.stage.ledger_url(database=NAIVE_DB))
        try:
            rows = await conn.fetch("select user_id, resource_id from public.confirmed_tickets")
        finally:
            await conn.close()
        return [Promise(row["user_id"], str(row["resource_id"])) for row in rows]
