"""Two simulated rails over HTTP, a fleet of relayer processes, and the database between them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from uuid import UUID

import asyncpg
from tests.support.payments import SqlPayments
from tests.support.workers import ROOT, WorkerProcess

from penstock.payments.simulator import Simulator
from penstock.payments.simulator_server import serving

PLENTY_OF_ATTEMPTS = 50


class Relayers:
    """What one fault test has at hand."""

    def __init__(self, url: str, directory: Path, payments: SqlPayments) -> None:
        self.url = url
        self.payments = payments
        self.keyed = Simulator()
        self.plain = Simulator(keyed=False)
        self.rails: dict[str, str] = {}
        self._directory = directory
        self._numbers = count(1)
        self._processes: list[WorkerProcess] = []

    def start(self, failpoints: str = "") -> WorkerProcess:
        """Start a relayer."""
        log = self._directory / f"observed-{next(self._numbers)}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK", "PG"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.relayer_program"],
            cwd=ROOT,
            env={
                **inherited,
                "PENSTOCK_DATABASE_URL": self.url,
                "PENSTOCK_FAILPOINTS": failpoints,
                "TEST_OBSERVATIONS": str(log),
                **self.rails,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        worker = WorkerProcess(process, log)
        self._processes.append(worker)
        return worker

    async def end(self) -> None:
        """Leave no process behind."""
        for worker in self._processes:
            if worker.process.poll() is None:
                worker.send(signal.SIGKILL)
            await asyncio.to_thread(worker.process.communicate)

    async def state(self, payment: UUID) -> str | None:
        """Where a payment stands."""
        return await self.payments.state(payment)


@asynccontextmanager
async def relaying(url: str, directory: Path) -> AsyncIterator[Relayers]:
    """The rails served, the clock shiftable, back-off short; ends every process."""
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    payments = SqlPayments(conn)
    await payments.make_clock_shiftable()
    await payments.config(
        backoff_base_s=0.02, backoff_cap_s=0.1, max_attempts=PLENTY_OF_ATTEMPTS, poll_ms=250
    )
    relayers = Relayers(url, directory, payments)
    try:
        async with serving(relayers.keyed) as keyed, serving(relayers.plain) as plain:
            relayers.rails = {"TEST_KEYED": keyed, "TEST_PLAIN": plain}
            try:
                yield relayers
            finally:
                await relayers.end()
    finally:
        await conn.close()
