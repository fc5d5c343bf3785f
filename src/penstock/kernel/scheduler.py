"""Runs scheduled jobs: due rows of `penstock.schedule`, each once however many workers ask."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TypeAlias

from penstock.kernel.database import Database, PooledConnection, call
from penstock.kernel.events import Events, JobRan

Job: TypeAlias = Callable[[PooledConnection], Awaitable[object]]

LOOK_EVERY_S = 1.0
JOB_LEASE_S = 120


class Scheduler:
    """Claims due jobs by name and runs those this process knows."""

    def __init__(self, database: Database, jobs: Mapping[str, Job], events: Events) -> None:
        self._database = database
        self._jobs = dict(jobs)
        self._events = events

    async def run(self) -> None:
        """Look for due jobs until cancelled."""
        while True:
            try:
                await self.run_due()
            except Exception as error:  # the boundary: the jobs stay due, the next look may do
                self._events.emit(JobRan("scheduler", 0.0, type(error).__name__))
            await asyncio.sleep(LOOK_EVERY_S)

    async def run_due(self) -> int:
        """Run what is due now, one after the other; returns how many ran."""
        if not self._jobs:
            return 0
        async with self._database.connection() as conn:
            claimed = await call(
                conn,
                "select job, token from penstock.claim_jobs($1, $2)",
                list(self._jobs),
                JOB_LEASE_S,
            )
            claimed_at = monotonic()
            for row in claimed:
                if monotonic() - claimed_at > JOB_LEASE_S / 2:
                    break  # the rest could outlive their leases here; another worker takes them
                error = await self._run(conn, row["job"])
                await call(
                    conn,
                    "select penstock.finish_job($1, $2, $3)",
                    row["job"],
                    row["token"],
                    error,
                )
        return len(claimed)

    async def _run(self, conn: PooledConnection, job: str) -> str | None:
        started = monotonic()
        error: Exception | None = None
        try:
            async with asyncio.timeout(JOB_LEASE_S / 2):
                await self._jobs[job](conn)
        except Exception as caught:  # the boundary: a job that fails must not end the others
            error = caught
        name = type(error).__name__ if error is not None else ""
        self._events.emit(JobRan(job, (monotonic() - started) * 1000, name))
        return f"{name}: {error}" if error is not None else None
