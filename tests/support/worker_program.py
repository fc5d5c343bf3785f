"""A worker process for fault tests: the real application, with handlers that misbehave on request.

The payload says what its handler does. Everything is recorded by the downstream before and after,
and every observation is a line in a file, so that a test can see what a killed process had seen.
"""

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.downstream import Downstream
from tests.support.waiting import until_true

from penstock.application import Penstock
from penstock.kernel.event import Attempt, Event
from penstock.kernel.events import Observation
from penstock.kernel.failpoints import arm_from_environment
from penstock.kernel.tx import Tx
from penstock.kernel.verdict import Reject, Retry, Verdict

EXIT_CODE = 9


def _shift_clock(seconds: float) -> None:
    """Make this process's wall clock wrong; the monotonic one stays right."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)


async def _gate(path: Path) -> None:
    await until_true(path.exists, f"{path} exists", within_s=120)


async def _obey(data: dict[str, Any]) -> Verdict | None:
    match data.get("do", "ok"):
        case "exit":
            os._exit(EXIT_CODE)
        case "gate":
            await _gate(Path(data["gate"]))
        case "raise":
            raise RuntimeError("as requested")
        case "retry":
            return Retry(after=timedelta(seconds=data.get("after_s", 0)))
        case "reject":
            return Reject("BAD")
        case _:
            pass
    return None


def build(ledger: Downstream) -> Penstock:
    """The application: topic `plain` calls the downstream, topic `tx` writes in its transaction."""
    ps = Penstock.from_env()
    plain = ps.outbox.topic("plain", dict[str, Any])
    local = ps.outbox.topic("tx", dict[str, Any])

    @plain.on(concurrency=8)
    async def call_downstream(event: Event[dict[str, Any]], attempt: Attempt) -> Verdict | None:
        ledger.record(str(event.id), attempt.number, "started")
        verdict = await _obey(event.data)
        if verdict is None:
            ledger.record(str(event.id), attempt.number, "done")
        return verdict

    @local.on(concurrency=4)
    async def write_locally(
        event: Event[dict[str, Any]], tx: Tx, attempt: Attempt
    ) -> Verdict | None:
        ledger.record(str(event.id), attempt.number, "started")
        await tx.execute("insert into public.effects (event_id) values ($1)", event.id)
        return await _obey(event.data)

    return ps


def _show_tasks() -> None:
    """Say on standard error where every task is: for finding out why a worker hangs."""
    for task in asyncio.all_tasks():
        print(task.get_name(), file=sys.stderr)
        awaited: Any = task.get_coro()
        while awaited is not None:
            print(f"    {awaited}", file=sys.stderr)
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)


async def main() -> None:
    """Work until SIGTERM; the report is the last line on standard output."""
    ps = build(Downstream(Path(os.environ["TEST_LEDGER"])))
    log = Path(os.environ["TEST_OBSERVATIONS"])

    def write(one: Observation) -> None:
        values = {field.name: str(getattr(one, field.name)) for field in fields(one)}
        with log.open("a") as file:
            file.write(json.dumps({"name": one.name, **values}) + "\n")

    ps.subscribe(write)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ps.stop)
    loop.add_signal_handler(signal.SIGUSR1, _show_tasks)
    async with ps:
        report = await ps.work(only=["outbox"])
    print(json.dumps({field.name: getattr(report, field.name) for field in fields(report)}))


if __name__ == "__main__":
    _shift_clock(float(os.environ.get("TEST_CLOCK_S", "0")))
    arm_from_environment()
    asyncio.run(main())
