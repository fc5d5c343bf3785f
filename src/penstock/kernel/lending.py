"""What a running application lends to each product: databases, threads, hooks, a runtime.

A product answers with its assignment: its queue and the handlers bound to that runtime.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from penstock.kernel.database import Database
from penstock.kernel.event import Effects, Ending
from penstock.kernel.events import Events
from penstock.kernel.handlers import Hook, Runtime
from penstock.kernel.injection import Resources
from penstock.kernel.queue import Item, Queue
from penstock.kernel.scheduler import Job
from penstock.kernel.settings import Settings
from penstock.kernel.traces import Traces
from penstock.kernel.tx import Tx
from penstock.kernel.worker import Assignment

# Claiming, finishing, housekeeping and the heartbeat must get through while handlers hold theirs.
RESERVED_CONNECTIONS = 4


@dataclass(slots=True)
class Lending:
    """One running process, as products see it."""

    settings: Settings
    database: Database
    resources: Resources
    events: Events
    threads: Callable[[], Executor]
    hooks: Sequence[Hook] = ()
    ledger: Database | None = None
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(max(1, self.database.size - RESERVED_CONNECTIONS))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A transaction for a handler; waits for its turn instead of draining the pool."""
        async with self._slots, self.database.transaction() as conn:
            yield Tx(conn)

    async def runtime(
        self, queue: Queue, ending: Ending, *, calls: int | None = 0, effects: Effects | None = None
    ) -> Runtime:
        """What the handlers of one queue run with; `calls` is how many there may be at once.

        Only where that is more than the process allows, or not known beforehand (None), do they
        have to take turns.
        """
        allowed = self.settings.concurrency

        async def extend(items: Sequence[Item]) -> Sequence[Item]:
            async with self.database.connection() as conn:
                lost = await queue.extend(conn, items)
            for item in lost:
                item.lease.lost = True
            return lost

        async with self.database.connection() as conn:
            policy = await queue.policy(conn)
        return Runtime(
            queue=queue.name,
            ending=ending,
            extend=extend,
            transaction=self.transaction,
            resources=self.resources,
            events=self.events,
            threads=self.threads,
            hooks=self.hooks,
            traces=Traces(),
            lease_s=policy.lease_s,
            concurrency_max=allowed,
            attempts_max=self.settings.max_attempts or 1000,
            slots=asyncio.Semaphore(allowed) if calls is None or calls > allowed else None,
            effects=effects,
        )


class Working(Protocol):
    """A product's part in a worker."""

    queue_name: str

    def kinds(self) -> Sequence[type]:
        """The resources that its handlers ask for."""
        ...

    async def assignment(self, lending: Lending) -> Assignment | None:
        """Its queue with bound handlers; None when nothing is to be done here."""
        ...

    def jobs(self, lending: Lending) -> Mapping[str, Job]:
        """Its scheduled jobs, by name."""
        ...
