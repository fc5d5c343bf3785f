"""Outcomes are written in batches; what has gathered meanwhile goes together."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from tests.support.outbox import Connection, SqlOutbox
from tests.support.waiting import until_true

from penstock.kernel.database import Database
from penstock.kernel.events import Events
from penstock.kernel.finisher import FLUSH_BATCHES, Finisher
from penstock.kernel.queue import Connection as QueueConnection
from penstock.kernel.queue import Item, Outcome
from penstock.kernel.verdict import DONE
from penstock.outbox.queue import OutboxQueue

BATCH = 2


class CountingQueue(OutboxQueue):
    """The real queue, and how many outcomes each of its statements had."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def finish(self, conn: QueueConnection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        self.sizes.append(len(outcomes))
        return await super().finish(conn, outcomes)


async def test_what_has_gathered_is_written_together_up_to_a_bound(
    database_url: str, conn: Connection
) -> None:
    await SqlOutbox(conn).publish(FLUSH_BATCHES * BATCH + 1)
    queue = CountingQueue()
    items = await queue.claim(conn, limit=100, owner=uuid4())
    written: list[Item] = []
    database = Database(database_url, size=1)
    await database.open()
    finisher = Finisher(
        queue,
        database,
        Events(),
        batch=BATCH,
        flush_age_s=0.0,
        written=lambda done, _: written.extend(done),
    )
    finisher.add(*(Outcome(item, DONE) for item in items))
    running = asyncio.create_task(finisher.run())
    await until_true(lambda: len(written) == len(items), "everything is written")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await database.close()
    assert queue.sizes == [FLUSH_BATCHES * BATCH, 1]
    assert await conn.fetchval("select count(*) from public.outbox") == 0
