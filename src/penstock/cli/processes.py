"""Several worker processes under one parent: started, restarted when they die, stopped together.

The parent holds no database connection. A process that ends by itself with a usage or schema error
would do so again; that ends all. One that is killed is started again after a pause.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

FINAL_CODES = frozenset({0, 2, 4, 5})
RESTART_PAUSE_S = 0.5
PARENT_LOOK_S = 0.5


async def run_processes(
    arguments: Callable[[int], Sequence[str]],
    count: int,
    *,
    grace_s: float,
    environment: Mapping[str, str],
) -> int:
    """Run `python -m penstock ARGUMENTS` for each number below count; returns the exit code."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    tasks = [
        asyncio.create_task(
            _keep(arguments(number), stopping, grace_s=grace_s, environment=environment)
        )
        for number in range(count)
    ]
    codes = await asyncio.gather(*tasks)
    return max(codes)


async def _keep(
    arguments: Sequence[str],
    stopping: asyncio.Event,
    *,
    grace_s: float,
    environment: Mapping[str, str],
) -> int:
    """Keep one process running until all are to stop; returns its last exit code."""
    stopped = asyncio.create_task(stopping.wait())
    try:
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock", *arguments, env=environment
            )
            ended = asyncio.create_task(process.wait())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return await _end(process, ended, grace_s)
            if ended.result() in FINAL_CODES:
                stopping.set()
                return ended.result()
            await asyncio.wait({stopped}, timeout=RESTART_PAUSE_S)
            if stopped.done():
                return 0
    finally:
        stopped.cancel()


async def _end(
    process: asyncio.subprocess.Process, ended: "asyncio.Task[int]", grace_s: float
) -> int:
    if process.returncode is None:
        process.terminate()
    await asyncio.wait({ended}, timeout=grace_s)
    if not ended.done():
        process.kill()
    return max(0, await ended)


async def watch_parent(parent: int, stop: Callable[[], object]) -> None:
    """Call `stop` when the parent has gone: a worker without one would never be stopped."""
    while True:
        if os.getppid() != parent:
            stop()
            return
        await asyncio.sleep(PARENT_LOOK_S)
