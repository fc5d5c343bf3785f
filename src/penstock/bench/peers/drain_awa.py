"""Drains no-op jobs with awa; run by its own Python, imports nothing of Penstock."""

import asyncio
import json
import sys
from dataclasses import dataclass
from time import perf_counter

import awa
import uvloop

CHUNK = 5_000


@dataclass
class Noop:
    """The arguments of a job."""

    order_id: int
    amount: str
    customer: str
    lines: int


async def main(url: str, jobs: int, payload: str, *, workers: int) -> None:
    """Enqueue by COPY, then work until the last job has run."""
    # Its driver wants a host in the usual place; the parameter still names the socket's directory.
    client = awa.AsyncClient(url.replace("@/", "@localhost/", 1), max_connections=20)
    await client.migrate()
    await client.install_queue_storage()
    arguments = Noop(**json.loads(payload))
    for start in range(0, jobs, CHUNK):
        await client.enqueue_many_copy(
            [arguments] * min(CHUNK, jobs - start), kind="noop", queue="bench"
        )
    done = 0
    ended = 0.0
    all_done = asyncio.Event()

    async def noop(job: object) -> None:
        nonlocal done, ended
        del job
        done += 1
        if done == jobs:
            ended = perf_counter()
            all_done.set()

    client.task(Noop, kind="noop", queue="bench")(noop)
    started = perf_counter()
    await client.start(
        [{"name": "bench", "max_workers": workers, "claimers": 2, "claim_batch_size": 512}],
        poll_interval_ms=10,
    )
    await all_done.wait()
    await client.shutdown()
    print(json.dumps({"jobs": done, "seconds": ended - started}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], workers=int(sys.argv[4])))
