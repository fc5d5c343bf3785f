"""A worker process: one pump per queue, the listener, the scheduler. It holds nothing that matters.

Its id is fresh every time; recovery is SQL over expired leases, so being killed anywhere is normal.
"""

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from penstock.kernel.backoff import Backoff
from penstock.kernel.database import PASSING_ERRORS, Database, call
from penstock.kernel.errors import NotFound
from penstock.kernel.events import (
    BackgroundFailed,
    Disconnected,
    Events,
    WorkerStarted,
    WorkerStopped,
)
from penstock.kernel.handler import Handler, Roster
from penstock.kernel.ids import uuid7
from penstock.kernel.limits import Limits
from penstock.kernel.pump import Pump
from penstock.kernel.queue import Queue, channel_of
from penstock.kernel.report import WorkReport
from penstock.kernel.scheduler import Job, Scheduler
from penstock.kernel.version import VERSION
from penstock.kernel.wakeup import Listener

HEARTBEAT_S = 10.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A queue and who handles what on it, by topic; `roster` where that changes meanwhile.

    `idle` says that nobody handles anything yet: only the roster may bring somebody.
    """

    queue: Queue
    handlers: Mapping[str, Handler]
    roster: Roster | None = None
    idle: bool = False


class Worker:
    """Works its assignments until stopped. Not reusable; build a new one to work again."""

    def __init__(
        self,
        database: Database,
        assignments: Sequence[Assignment],
        *,
        events: Events,
        limits: Limits | None = None,
        jobs: Mapping[str, Job] | None = None,
        listen_on: Database | None = None,
    ) -> None:
        self.id: UUID = uuid7()
        self._database = database
        self._assignments = assignments
        self._events = events
        self._limits = limits or Limits()
        self._jobs = jobs or {}
        self._listen_on = listen_on
        self._pumps: list[Pump] = []
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to drain; `run` returns when that is done. Safe to call from a signal handler."""
        self._stopping.set()
        for pump in self._pumps:
            pump.stop()

    def ring(self, queue: str) -> bool:
        """An outside doorbell: there may be work in this queue. False if nobody stays to hear."""
        if self._limits.until_idle or self._stopping.is_set():
            return False
        pumps = [pump for pump in self._pumps if pump.queue.name == queue]
        for pump in pumps:
            pump.wakeup.ring()
        return bool(pumps)

    async def run(self) -> WorkReport:
        """Work every assignment until stopped or, if the limits say so, until idle."""
        await self._build_pumps(self._limits)
        queues = tuple(pump.queue.name for pump in self._pumps)
        self._events.emit(WorkerStarted(self.id, queues))
        background = [self._beside("heartbeat", self._heartbeat(list(queues)))]
        if self._jobs:
            scheduler = Scheduler(self._database, self._jobs, self._events)
            background.append(self._beside("scheduler", scheduler.run()))
        if self._listen_on is not None:
            bells = {channel_of(pump.queue): pump.wakeup.ring for pump in self._pumps}
            listener = Listener(self._listen_on, bells, self._events)
            background.append(self._beside("listener", listener.run()))
        try:
            reports = await self._run_pumps()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        report = sum(reports, WorkReport())
        await self._farewell()
        self._events.emit(WorkerStopped(self.id, report.released, report.abandoned))
        return report

    def _beside(self, part: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run what the work can do without; nobody awaits it, so its failure is told."""

        def ended(task: "asyncio.Task[None]") -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._events.emit(BackgroundFailed(part, type(error).__name__))

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        return task

    async def _run_pumps(self) -> list[WorkReport]:
        """Run every pump; when one fails, the others drain before the failure goes on."""
        runs = [asyncio.create_task(pump.run()) for pump in self._pumps]
        try:
            return await asyncio.gather(*runs)
        except Exception:
            self.stop()
            await asyncio.gather(*runs, return_exceptions=True)
            raise

    async def run_once(
        self, queue: str, *, deadline_s: float = 50.0, limit: int | None = None
    ) -> WorkReport:
        """Claim until empty, limit or deadline, without listening; then return what was done."""
        if queue not in {assignment.queue.name for assignment in self._assignments}:
            raise NotFound(f"this worker has no queue named {queue!r}")
        limits = replace(self._limits, items=limit, deadline_s=deadline_s, until_idle=True)
        try:
            async with asyncio.timeout(deadline_s):
                await self._build_pumps(limits, only=queue)
        except TimeoutError:
            return WorkReport()  # the database stayed away all the time
        return sum([await pump.run() for pump in self._pumps], WorkReport())

    async def _build_pumps(self, limits: Limits, only: str | None = None) -> None:
        for delay_s in Backoff(base_s=0.1, cap_s=2.0).delays_s():
            try:
                self._pumps = [
                    await self._pump(assignment, limits)
                    for assignment in self._assignments
                    if only in (None, assignment.queue.name)
                ]
                break
            except PASSING_ERRORS as error:
                self._events.emit(Disconnected("worker", type(error).__name__, delay_s))
                if self._stopping.is_set():
                    return
                await asyncio.sleep(delay_s)
        if self._stopping.is_set():
            self.stop()

    async def _pump(self, assignment: Assignment, limits: Limits) -> Pump:
        async with self._database.connection() as conn:
            policy = await assignment.queue.policy(conn)
        return Pump(
            assignment.queue,
            assignment.handlers,
            database=self._database,
            events=self._events,
            policy=policy,
            owner=self.id,
            limits=limits,
            roster=assignment.roster,
        )

    async def _heartbeat(self, queues: list[str]) -> None:
        while True:
            try:
                async with self._database.connection() as conn:
                    await call(
                        conn,
                        "select penstock.heartbeat($1, $2, $3, $4, $5)",
                        self.id,
                        socket.gethostname(),
                        os.getpid(),
                        VERSION,
                        queues,
                    )
            except PASSING_ERRORS:
                pass  # only people read heartbeats; the pumps report the outage
            await asyncio.sleep(HEARTBEAT_S)

    async def _farewell(self) -> None:
        try:
            async with self._database.connection(timeout_s=2.0) as conn:
                await call(conn, "select penstock.farewell($1)", self.id)
        except PASSING_ERRORS:
            return  # the row is removed a day later
