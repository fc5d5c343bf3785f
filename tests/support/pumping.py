"""A pump inside the test's own process, on a real database, with handlers and faults of the test's.

For what needs exact steps. What needs real processes is in workers.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from penstock.kernel.database import Database
from penstock.kernel.events import Events, Observation
from penstock.kernel.handler import Answer
from penstock.kernel.ids import uuid7
from penstock.kernel.limits import Limits
from penstock.kernel.pump import Pump
from penstock.kernel.queue import Connection, Item, Outcome, Queue, Tending
from penstock.kernel.report import WorkReport
from penstock.kernel.verdict import DONE
from penstock.outbox.queue import OutboxQueue

Answering = Callable[[Item], Awaitable[Answer]]


@dataclass(slots=True)
class Calls:
    """A handler that remembers its calls and answers as the test says."""

    answering: Answering | None = None
    size: int = 1
    concurrency: int = 4
    timeout_s: float = 30.0
    max_attempts: int = 10
    seen: list[Item] = field(default_factory=list)

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Answer for each item."""
        self.seen += items
        if self.answering is None:
            return [DONE] * len(items)
        return [await self.answering(item) for item in items]

    @property
    def ids(self) -> list[UUID]:
        """The ids of the calls, in order."""
        return [item.id for item in self.seen]


class TroubledQueue(OutboxQueue):
    """The outbox, with errors that the test puts in the way of single verbs."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, list[Exception]] = {}
        self.always: dict[str, Exception] = {}

    def _meet(self, verb: str) -> None:
        if verb in self.always:
            raise self.always[verb]
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)

    async def claim(
        self, conn: Connection, *, limit: int, owner: UUID, skip: Sequence[str] = ()
    ) -> Sequence[Item]:
        """Claim, unless there is trouble."""
        self._meet("claim")
        return await super().claim(conn, limit=limit, owner=owner, skip=skip)

    async def finish(self, conn: Connection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        """Finish, unless there is trouble."""
        self._meet("finish")
        return await super().finish(conn, outcomes)

    async def extend(self, conn: Connection, items: Sequence[Item]) -> Sequence[Item]:
        """Extend, unless there is trouble."""
        self._meet("extend")
        return await super().extend(conn, items)

    async def ready(self, conn: Connection) -> bool:
        """Look, unless there is trouble."""
        self._meet("ready")
        return await super().ready(conn)

    async def tend(self, conn: Connection) -> Tending:
        """Keep house, unless there is trouble."""
        self._meet("tend")
        return await super().tend(conn)


@dataclass(slots=True)
class Running:
    """A pump at work and what it has reported."""

    pump: Pump
    task: "asyncio.Task[WorkReport]"
    observed: list[Observation]

    def saw(self, kind: type[Observation]) -> int:
        """How many observations of a kind there were."""
        return sum(isinstance(one, kind) for one in self.observed)

    async def stop(self) -> WorkReport:
        """Drain and return the report."""
        self.pump.stop()
        return await asyncio.wait_for(self.task, 20)


@asynccontextmanager
async def pumping(
    url: str,
    handler: Calls,
    *,
    queue: Queue | None = None,
    size: int = 5,
    limits: Limits | None = None,
) -> AsyncIterator[Running]:
    """Run a pump over the topic `t` while the block runs."""
    database = Database(url, size=size)
    await database.open()
    events = Events()
    observed: list[Observation] = []
    events.subscribe(observed.append)
    queue = queue or OutboxQueue()
    async with database.connection() as conn:
        policy = await queue.policy(conn)
    pump = Pump(
        queue,
        {"t": handler},
        database=database,
        events=events,
        policy=policy,
        owner=uuid7(),
        limits=limits or Limits(),
    )
    task = asyncio.create_task(pump.run())
    try:
        yield Running(pump, task, observed)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await database.close()
