"""Drains no-op jobs with PgQueuer; run by its own Python, imports nothing of Penstock."""

import json
import sys
from time import perf_counter

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

CHUNK = 5_000


async def main(url: str, jobs: int, payload: bytes, *, batch: int) -> None:
    """Enqueue, then work until the queue is empty."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    for start in range(0, jobs, CHUNK):
        size = min(CHUNK, jobs - start)
        await queries.enqueue(["noop"] * size, [payload] * size, [0] * size)
    conn = await asyncpg.connect(url)
    await conn.execute("vacuum analyze")
    done = 0
    ended = 0.0

    async def noop(job: object) -> None:
        nonlocal done, ended
        del job
        done += 1
        ended = perf_counter()

    manager = QueueManager(Queries(AsyncpgDriver(conn)))
    manager.entrypoint("noop")(noop)
    started = perf_counter()
    await manager.run(batch_size=batch, mode=QueueExecutionMode.drain)
    print(json.dumps({"jobs": done, "seconds": ended - started}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), batch=int(sys.argv[4])))
