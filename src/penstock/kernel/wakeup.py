"""Knowing that there may be work. Polling is the guarantee; everything else only shortens the wait.

`Wakeup` belongs to one pump: it is rung by a doorbell (an HTTP trigger, a NOTIFY) and otherwise
asks the ready index, every 10 ms while there was traffic lately, backing off to the queue's
`poll_ms`. `Listener` belongs to the process: one direct connection that LISTENs for all queues and
tests itself first, because behind a transaction pooler LISTEN succeeds and then hears nothing.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

import asyncpg

from penstock.kernel.backoff import Backoff
from penstock.kernel.database import DRIVER_ERRORS, Database
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.events import Events, ListenUnavailable
from penstock.kernel.ids import uuid7

BUSY_POLL_S = 0.010
BUSY_FOR_S = 2.0
# Anybody may ring, as often as they like: a storm of hints must not become one of claims. What our
# own work has made claimable is no hint and does not wait.
QUIET_S = {"notify": 0.025, "busy": 0.0}


class Wakeup:
    """Waits until a queue may have work; never longer than one poll interval between looks."""

    def __init__(self, poll_s: float) -> None:
        self.poll_s = poll_s
        self._bell = asyncio.Event()
        self._hurry = asyncio.Event()
        self._rung_by = "doorbell"
        self._last_work = 0.0
        self._last_rung = 0.0

    def ring(self, by: str = "doorbell") -> None:
        """There may be work: end the wait now. Cheap, harmless when there is none."""
        if not self._bell.is_set():
            self._rung_by = by  # who rang first is why it wakes
        self._bell.set()
        if QUIET_S.get(by) == 0.0:
            self._hurry.set()

    def looking(self) -> None:
        """A claim begins: it answers whatever rang before, and only what rings later counts."""
        self._bell.clear()
        self._hurry.clear()

    def worked(self) -> None:
        """A claim found something: look often for a while."""
        self._last_work = monotonic()

    async def wait(self, ready: Callable[[], Awaitable[bool]]) -> str:
        """Return when rung or when `ready` says so: "doorbell", "notify", "busy" or "poll".

        Called after a claim that found nothing, so it waits before it looks: a queue that seems
        ready and gives nothing (a paused topic) is asked once per interval, not without pause.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), self._interval_s())
            if self._bell.is_set():
                return await self._answer()
            if await ready():
                return "poll"

    async def _answer(self) -> str:
        pause_s = self._last_rung + QUIET_S.get(self._rung_by, BUSY_POLL_S) - monotonic()
        if pause_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), pause_s)
        self._last_rung = monotonic()
        self.looking()
        return self._rung_by

    def _interval_s(self) -> float:
        idle_s = monotonic() - self._last_work
        if idle_s < BUSY_FOR_S:
            return min(BUSY_POLL_S, self.poll_s)
        return self.poll_s


class Listener:
    """Hears NOTIFYs for many queues on one direct connection; `bells` are by channel."""

    def __init__(
        self, database: Database, bells: Mapping[str, Callable[[str], None]], events: Events
    ) -> None:
        self._database = database
        self._bells = dict(bells)
        self._events = events
        self.available = False

    async def run(self) -> None:
        """Listen until cancelled; reconnects by itself, gives up for good behind a pooler."""
        delays = Backoff(base_s=0.2, cap_s=5.0).delays_s()
        while True:
            try:
                conn = await self._database.dedicated()
            except (DatabaseUnreachable, asyncpg.PostgresError):
                await asyncio.sleep(next(delays))
                continue
            try:
                if not await self._hears_itself(conn):
                    self._events.emit(ListenUnavailable("no notification arrived within a second"))
                    return
                delays = Backoff(base_s=0.2, cap_s=5.0).delays_s()
                await self._listen(conn)
            except DRIVER_ERRORS:
                await asyncio.sleep(next(delays))
            finally:
                self.available = False
                conn.terminate()

    async def _hears_itself(self, conn: "asyncpg.Connection[asyncpg.Record]") -> bool:
        heard = asyncio.Event()
        channel = f"penstock_test_{uuid7().hex}"
        await conn.add_listener(channel, lambda *_: heard.set())
        await conn.execute("select pg_notify($1, '')", channel)
        try:
            await asyncio.wait_for(heard.wait(), 1.0)
        except TimeoutError:
            return False
        await conn.execute(f'unlisten "{channel}"')
        return True

    async def _listen(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        gone = asyncio.Event()
        conn.add_termination_listener(lambda *_: gone.set())
        for channel, ring in self._bells.items():
            await conn.add_listener(channel, lambda *_, ring=ring: ring("notify"))
        self.available = True
        # What was committed while nobody listened is found by looking once, now.
        for ring in self._bells.values():
            ring("doorbell")
        await gone.wait()
