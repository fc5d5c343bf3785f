"""Keeps leases alive while handlers work, on a connection of its own.

The connection is reserved: when handlers have taken the whole pool, extensions still get through,
and no lease is lost to starvation.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic

import asyncpg

from penstock.kernel.database import DRIVER_ERRORS, Database
from penstock.kernel.errors import PenstockError
from penstock.kernel.events import Events, LeaseWasLost
from penstock.kernel.queue import Item, Queue

TICK_S_MAX = 0.5
# With less the keeper would do nothing but extend.
LEASE_S_MIN = 1.0
EXTEND_ERRORS: tuple[type[Exception], ...] = (PenstockError, *DRIVER_ERRORS)


class Keeper:
    """Extends every lease that has used up a third of its time."""

    def __init__(
        self,
        queue: Queue,
        database: Database,
        events: Events,
        *,
        lease_s: float,
        held: Callable[[], Iterable[Item]],
    ) -> None:
        self._queue = queue
        self._database = database
        self._events = events
        self._lease_s = lease_s
        self._held = held
        self._conn: asyncpg.Connection[asyncpg.Record] | None = None

    @property
    def lease_s(self) -> float:
        """How long a lease lasts, as far as the keeper knows."""
        return self._lease_s

    async def run(self) -> None:
        """Extend until cancelled."""
        try:
            while True:
                await asyncio.sleep(min(self._lease_s / 10, TICK_S_MAX))
                await self._extend_due()
        finally:
            if self._conn is not None:
                self._conn.terminate()

    async def _extend_due(self) -> None:
        due = [
            item
            for item in self._held()
            # A row that the user's open transaction has finished is locked: asking for it would
            # hold up the extension of all the others.
            if not item.lease.lost
            and not item.finished_by_handler
            and item.lease.remaining_s() < self._lease_s * 2 / 3
        ]
        if not due:
            return
        try:
            # A connection that has gone silent must not use up the margin.
            async with asyncio.timeout(self._lease_s / 4):
                await self.extend(due)
        except EXTEND_ERRORS:
            # Try again in a moment, on a new connection; a third of the lease is the margin.
            if self._conn is not None:
                self._conn.terminate()
                self._conn = None

    async def extend(self, items: list[Item]) -> None:
        """Extend these now; those that are lost are marked so, and no effect of theirs starts."""
        if self._conn is None or self._conn.is_closed():
            self._conn = await self._database.dedicated()
        before = monotonic()
        lost = {item.key for item in await self._queue.extend(self._conn, items)}
        for item in items:
            if item.key not in lost:
                # The policy may have changed since the start: the queue says how long it is now.
                granted_s = item.lease.deadline - before
                if granted_s > 0:
                    self._lease_s = max(granted_s, LEASE_S_MIN)
            elif not item.finished_by_handler:
                item.lease.lost = True
                self._events.emit(LeaseWasLost(self._queue.name, item.id, item.lease.epoch))
