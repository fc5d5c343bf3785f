"""The housekeeping of a pump's queue, and what it tells of it."""

import asyncio
from collections.abc import Callable

from penstock.kernel.database import PASSING_ERRORS, Database
from penstock.kernel.events import Events, Tended
from penstock.kernel.queue import Queue

TEND_S = 0.2
LAST_S = 2.0


class Tender:
    """Tends a queue every now and then; `brought` is called when that made something ready."""

    def __init__(
        self, queue: Queue, database: Database, events: Events, *, brought: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._database = database
        self._events = events
        self._brought = brought
        self._round: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Tend until cancelled; a round under way goes on, for `last` to wait for."""
        while True:
            self._round = asyncio.create_task(self._tend())
            await asyncio.shield(self._round)
            await asyncio.sleep(TEND_S)

    async def last(self) -> None:
        """After `run`: tell of deaths up to now, as far as the database answers soon."""
        if self._round is not None and await _ended(self._round):
            await _ended(asyncio.create_task(self._tend()))

    async def _tend(self) -> None:
        try:
            async with self._database.connection() as conn:
                done = await self._queue.tend(conn)
        except PASSING_ERRORS:
            return  # the claimer reports it; this comes round again
        for death in done.deaths:
            self._events.emit(death)
        if done.reaped or done.due or done.swept:
            self._events.emit(Tended(self._queue.name, done.reaped, done.due, done.swept))
            self._brought()


async def _ended(task: "asyncio.Task[None]") -> bool:
    """Whether a round ended by itself, in time."""
    done, _ = await asyncio.wait({task}, timeout=LAST_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return bool(done)
