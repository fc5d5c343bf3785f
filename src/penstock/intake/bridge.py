"""The bridge between engine and ledger: a queue, two lanes, and a single run for triggers."""

import asyncio
from dataclasses import dataclass

from penstock.intake.confirming import LedgerLane, WebhookLane
from penstock.intake.ledger import Ledger
from penstock.intake.messages import LEDGER_LANE, QUEUE, WEBHOOK_LANE
from penstock.intake.queue import IntakeQueue
from penstock.intake.webhooks import Webhooks
from penstock.kernel.database import Database
from penstock.kernel.events import Events
from penstock.kernel.limits import Limits
from penstock.kernel.settings import Settings
from penstock.kernel.worker import Assignment, Worker

# Longer than a trigger may wait for its answer, and shorter than the usual visibility.
RUN_S = 50.0
DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class BridgeReport:
    """What one run did; `idle` when there was nothing to do."""

    processed: int
    dlq: int
    total: int

    @property
    def status(self) -> str:
        """`idle` or `ok`."""
        return "ok" if self.total else "idle"

    def document(self) -> dict[str, object]:
        """The answer of the trigger route."""
        if not self.total:
            return {"status": self.status}
        return {
            "status": self.status,
            "processed": self.processed,
            "dlq": self.dlq,
            "total": self.total,
        }


class Bridge:
    """Everything that confirms reservations in one process."""

    def __init__(
        self, database: Database, ledger: Database | None, *, events: Events, settings: Settings
    ) -> None:
        self.ledger = Ledger(ledger, events, functions=settings.intake_commit_functions)
        self._database = database
        self._events = events
        self._settings = settings
        self._webhooks = Webhooks(settings)
        self._running = asyncio.Lock()

    def assignment(self) -> Assignment:
        """The queue and its lanes, for a worker."""
        return self._assignment(IntakeQueue(self.ledger, self._events))

    def _assignment(self, queue: IntakeQueue) -> Assignment:
        ledger_lane = LedgerLane(self._database, self.ledger)
        webhook_lane = WebhookLane(
            self._database, ledger_lane, webhooks=self._webhooks, events=self._events
        )
        return Assignment(queue, {LEDGER_LANE: ledger_lane, WEBHOOK_LANE: webhook_lane})

    async def run_once(
        self, *, deadline_s: float = RUN_S, limit: int | None = None
    ) -> BridgeReport:
        """Work until the queue is empty, or until limit or deadline; one run at a time."""
        async with self._running:
            queue = IntakeQueue(self.ledger, self._events)
            worker = Worker(
                self._database,
                [self._assignment(queue)],
                events=self._events,
                limits=Limits(batch=max(self._settings.batch_size, 500), drain_s=DRAIN_S),
            )
            report = await worker.run_once(QUEUE, deadline_s=deadline_s, limit=limit)
        tally = queue.tally
        return BridgeReport(
            processed=tally["confirmed"] + tally["released"],
            dlq=tally["dead"],
            total=report.claimed,
        )

    async def close(self) -> None:
        """Close what was opened here; the databases belong to whoever made them."""
        await self._webhooks.close()
