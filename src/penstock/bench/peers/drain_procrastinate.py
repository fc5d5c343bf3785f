"""Drains no-op jobs with Procrastinate; run by its own Python, imports nothing of Penstock."""

import json
import sys
from time import perf_counter

import uvloop
from procrastinate import App, PsycopgConnector

CHUNK = 1_000


async def main(url: str, jobs: int, payload: str, *, concurrency: int) -> None:
    """Defer, then work until the queue is empty."""
    app = App(connector=PsycopgConnector(conninfo=url))
    done = 0
    ended = 0.0

    async def noop(**arguments: object) -> None:
        nonlocal done, ended
        del arguments
        done += 1
        ended = perf_counter()

    task = app.task(name="noop")(noop)
    arguments = json.loads(payload)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, CHUNK):
            await task.batch_defer_async(*[arguments] * min(CHUNK, jobs - start))
        started = perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=concurrency, listen_notify=False, delete_jobs="always"
        )
    print(json.dumps({"jobs": done, "seconds": ended - started}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], concurrency=int(sys.argv[4])))
