"""The acts of the show: each drop of seats meets a fault, named before it happens."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import asyncpg

from penstock.demo.cast import Cast
from penstock.demo.databases import slow_ledger
from penstock.demo.plan import LEASE_S, POOL, Drop
from penstock.demo.show import Fault
from penstock.intake import store

LATE_WITHIN_S = 10.0
CROWD = 2000  # buyers of a drop who take long enough to be disturbed
NAMED_S = 0.4  # long enough to be read before it happens
REASON = "demo"


class Acts:
    """Plays the drops in order."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._show = cast.show
        self.false_sold_out: list[str] = []

    async def play(self) -> None:
        """All five drops, then everybody asks again."""
        drops = self._show.plan.drops()
        acts = (
            self.killed_worker,
            self.stopped_ledger,
            self.frozen_worker,
            self.double_clicks,
            self.killed_engine,
        )
        await self._configure()
        for drop, act in zip(drops, acts, strict=True):
            self._show.phase = f"drop {drop.number} of {len(drops)}"
            await act(drop)
        self._show.phase = "every buyer with a seat asks again"
        async with self._fault("every winner asks again") as fault:
            before = self._show.count("same")
            await self._cast.crowd.again()
            same = self._show.count("same") - before
            fault.outcome = f"{same:,} → the same seat"
            if same != self._show.count("yes"):
                fault.state = "failed"
        await self._cast.watch.drained()

    async def killed_worker(self, drop: Drop) -> None:
        """SIGKILL in the middle of a commit: the ledger has it, the engine never hears of it."""
        async with self._fault("kill -9 a worker mid-commit") as fault:
            async with slow_ledger(self._cast.stage) as ledger:
                burst = asyncio.create_task(self._drop(drop))
                login = await ledger.busiest(self._held, seats=drop.seats)
                victim, held = self._cast.workers[login], self._held(login)
                victim.signal(signal.SIGKILL)
                killed = monotonic()
                fault.name = f"kill -9 worker {victim.pid}"
            await victim.process.wait()
            await self._cast.hire()
            await self._cast.watch.drained()
            fault.outcome = f"its {held} back in {monotonic() - killed:.1f} s, 0 lost"
            await burst

    async def stopped_ledger(self, drop: Drop) -> None:
        """The second database goes away; the sale goes on, and the queue holds what is owed."""
        stage, watch = self._cast.stage, self._cast.watch
        async with self._fault("ledger database stopped") as fault:
            before = self._show.sample.queue
            await asyncio.to_thread(stage.ledger.stop)
            await self._drop(drop)
            await watch.look()
            fault.outcome = f"sale goes on, queue {before} → {self._show.sample.queue}"
        async with self._fault("ledger database back") as fault:
            await asyncio.to_thread(stage.ledger.start)
            fault.outcome = f"drained in {await watch.drained():.1f} s"

    async def frozen_worker(self, drop: Drop) -> None:
        """SIGSTOP past the lease: others take over, and what it says on waking changes nothing."""
        logs = self._cast.logs
        async with self._fault("a worker frozen past its lease") as fault:
            logs.read()
            before = logs.late()
            async with slow_ledger(self._cast.stage) as ledger:
                burst = asyncio.create_task(self._drop(drop))
                login = await ledger.busiest(self._held, seats=drop.seats)
                victim = self._cast.workers[login]
                victim.signal(signal.SIGSTOP)
                frozen = monotonic()
                fault.name = f"worker {victim.pid} frozen"
            await self._cast.watch.drained()
            fault.name += f" {monotonic() - frozen:.1f} s"
            victim.signal(signal.SIGCONT)
            await self._finished(login)
            fault.outcome = f"{logs.late() - before} stale finishes: no effect"
            await burst

    async def double_clicks(self, drop: Drop) -> None:
        """Everybody clicks twice at once, and some bring tokens that they signed themselves."""
        forged = self._show.plan.forged
        async with self._fault("every buyer double-clicks") as fault:
            same, yes = self._show.count("same"), self._show.count("yes")
            await self._drop(drop, clicks=2, forged=forged)
            same, yes = self._show.count("same") - same, self._show.count("yes") - yes
            refused = self._show.count("forged")
            fault.outcome = f"{same:,} same seat, {refused} forged: 401"
            # Whoever got a seat has clicked once more, and got that seat again.
            if same != yes or refused != forged:
                fault.state = "failed"

    async def killed_engine(self, drop: Drop) -> None:
        """SIGKILL of the engine's server under load: buyers ask again with the same key."""
        engine = self._cast.stage.engine
        async with self._fault("kill -9 the engine's Postgres") as fault:
            before, retried = self._show.count("requests"), self._show.count("retried")
            await self._stock(drop.seats)
            burst = asyncio.create_task(self._drop(drop, measured=False, stocked=True))
            if drop.buyers >= CROWD:  # a small one would be through before the blow falls
                await self._cast.crowd.until(before + drop.buyers // 5)
            killed = monotonic()
            fault.name = f"kill -9 engine Postgres {engine.pid}"
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.start)
            down = monotonic() - killed
            await burst
            again = self._show.count("retried") - retried
            fault.outcome = f"back in {down:.1f} s, {again:,} retries"
        await self._cast.watch.drained()

    # helpers

    @asynccontextmanager
    async def _fault(self, name: str) -> AsyncIterator[Fault]:
        fault = self._show.announce(name)
        await asyncio.sleep(NAMED_S)
        fault.state = "now"
        try:
            yield fault
        except BaseException:
            fault.state = "failed"
            raise
        if fault.state == "now":
            fault.state = "done"

    async def _drop(
        self,
        drop: Drop,
        *,
        clicks: int = 1,
        forged: int = 0,
        measured: bool = True,
        stocked: bool = False,
    ) -> None:
        """Put seats on sale, let the buyers loose, and see that no sold-out was a lie.

        Rate and latency are measured where the front door and its database stay up.
        """
        sold_out = self._show.count("sold_out")
        if not stocked:
            await self._stock(drop.seats)
        over = await self._cast.crowd.burst(drop, clicks=clicks, forged=forged, measured=measured)
        if measured:
            self._show.answers += over["answers"]
            self._show.seconds += over["seconds"]
        sample = await self._cast.watch.look()
        refused = self._show.count("sold_out") - sold_out
        if sample is not None and sample.free and refused:
            self.false_sold_out.append(
                f"drop {drop.number}: {refused} told sold out, {sample.free} seats are free"
            )

    async def _configure(self) -> None:
        conn = await asyncpg.connect(self._cast.stage.engine_url())
        try:
            settings = {"visibility_timeout_sec": LEASE_S}
            await store.set_pool(conn, POOL, settings, reason=REASON)
        finally:
            await conn.close()

    async def _stock(self, seats: int) -> None:
        conn = await asyncpg.connect(self._cast.stage.engine_url())
        try:
            await store.stock_pool(conn, POOL, count=seats, reason=REASON)
        finally:
            await conn.close()

    def _held(self, login: str) -> int:
        """What a worker has claimed and not finished, as it says itself."""
        self._cast.logs.read()
        return self._cast.logs.held_by(self._cast.workers[login].log)

    async def _finished(self, login: str) -> None:
        """Wait until a thawed worker has said what it had to say."""
        deadline = monotonic() + LATE_WITHIN_S
        while monotonic() < deadline:
            if self._held(login) <= 0:
                return
            await asyncio.sleep(0.05)
