"""Real worker processes for fault tests: started, killed, stopped and continued by their pid."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.support.downstream import Downstream
from tests.support.waiting import until_true

ROOT = Path(__file__).parents[2]
START_WITHIN_S = 30.0


class WorkerProcess:
    """One process; `observed` is what it reported, also after it was killed."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process number."""
        return self.process.pid

    def observed(self, name: str) -> list[dict[str, str]]:
        """Its observations of one kind."""
        if not self._log.exists():
            return []
        found = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [one for one in found if one["name"] == name]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def working(self) -> Self:
        """Wait until it claims; fail with its own words if it ends before."""

        def look() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.words()}")
            return bool(self.observed("worker_started"))

        await until_true(look, "the worker works", within_s=START_WITHIN_S)
        return self

    async def ended(self, *, within_s: float = 20.0) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        await until_true(
            lambda: self.process.poll() is not None, "the worker ended", within_s=within_s
        )
        code: int = self.process.returncode
        return code

    async def drained(self, *, within_s: float = 20.0) -> dict[str, int]:
        """Ask it to stop; returns its report. Fails unless it exits with 0."""
        self.send(signal.SIGTERM)
        try:
            code = await self.ended(within_s=within_s)
        except AssertionError as error:
            self.send(signal.SIGUSR1)
            await asyncio.sleep(1)  # time to say where it hangs; nothing depends on it
            self.send(signal.SIGKILL)
            raise AssertionError(f"{error}\n{self.words()}") from None
        output, errors = await asyncio.to_thread(self.process.communicate)
        assert code == 0, errors
        report: dict[str, int] = json.loads(output.splitlines()[-1])
        return report

    def words(self) -> str:
        """What it said on standard error; waits for its end."""
        _, errors = self.process.communicate()
        return errors


class Fleet:
    """Starts workers on one database and leaves none behind."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.downstream = Downstream(directory / "calls")
        self._directory = directory
        self._processes: list[WorkerProcess] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._processes:
            if worker.process.poll() is None:
                worker.send(signal.SIGKILL)
            await asyncio.to_thread(worker.process.communicate)

    def start(self, *, url: str | None = None, **environment: Any) -> WorkerProcess:
        """Start a process; keywords become environment variables in upper case."""
        log = self._directory / f"observed-{uuid4().hex}"
        settings = {
            "PENSTOCK_DATABASE_URL": url or self.url,
            "PENSTOCK_LISTEN": "off",
            "TEST_LEDGER": str(self.downstream.path),
            "TEST_OBSERVATIONS": str(log),
        }
        settings |= {name.upper(): str(value) for name, value in environment.items()}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK", "PG"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker_program"],
            cwd=ROOT,
            env=inherited | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        worker = WorkerProcess(process, log)
        self._processes.append(worker)
        return worker
