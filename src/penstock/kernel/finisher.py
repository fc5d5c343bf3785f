"""Writes outcomes in batches: flushed on size or age, repeated until the database has answered."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias, assert_never
from uuid import UUID

from penstock.kernel.backoff import Backoff
from penstock.kernel.database import PASSING_ERRORS, Database
from penstock.kernel.events import (
    Claimed,
    Disconnected,
    Events,
    Finished,
    FinishFailed,
    FinishRefused,
    Handled,
    ItemDied,
)
from penstock.kernel.failpoints import failpoint
from penstock.kernel.handler import Answer
from penstock.kernel.queue import Item, Outcome, Queue, Successive, ends_at_limit
from penstock.kernel.verdict import DONE, Done, Reject, Retry, Unknown, Verdict


def verdict_name(verdict: Verdict) -> str:
    """The word for a verdict, as observations and SQL use it."""
    match verdict:
        case Done():
            return "done"
        case Retry():
            return "retry"
        case Reject():
            return "reject"
        case Unknown():
            return "unknown"
        case _:
            assert_never(verdict)


def handled(queue: str, item: Item, answer: Answer, *, latency_ms: float) -> Handled:
    """What is told of one call: what finished elsewhere, or is to be looked at, was done."""
    verdict = answer if isinstance(answer, Done | Retry | Reject | Unknown) else DONE
    name, code = verdict_name(verdict), getattr(verdict, "code", "")
    return Handled(queue, item.topic, item.id, item.attempt, name, code, latency_ms)


# What has gathered while the last batch was being written goes with the next: fewer commits for a
# database that is behind.
FLUSH_BATCHES = 4
_COUNTED_AS = {"done": "finished", "retry": "retried", "reject": "rejected", "unknown": "held"}


# What was written, and what was claimed in the same commit.
Written: TypeAlias = Callable[[Sequence[Item], Sequence[Item]], None]


@dataclass(frozen=True, slots=True)
class Taking:
    """How a successive queue claims where it finishes; `skip` names full lanes, None forbids it."""

    queue: Successive
    owner: UUID
    skip: Callable[[], Sequence[str] | None]


class Finisher:
    """Collects outcomes of one queue and writes them, at most one statement at a time."""

    def __init__(
        self,
        queue: Queue,
        database: Database,
        events: Events,
        *,
        batch: int,
        flush_age_s: float,
        written: Written,
        taking: Taking | None = None,
    ) -> None:
        self._queue = queue
        self._database = database
        self._events = events
        self._batch = batch
        self._flush_age_s = flush_age_s
        self._written = written
        self._taking = taking
        self._buffer: list[Outcome] = []
        self._in_flight = 0
        self._more = asyncio.Event()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """Outcomes not yet known to be written."""
        return len(self._buffer) + self._in_flight

    def add(self, *outcomes: Outcome) -> None:
        """Take outcomes; they are written soon."""
        self._buffer.extend(outcomes)
        self._more.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._more.wait()
            if len(self._buffer) < self._batch:
                await asyncio.sleep(self._flush_age_s)
            await self._flush()

    async def _flush(self) -> None:
        size = FLUSH_BATCHES * self._batch
        batch, self._buffer = self._buffer[:size], self._buffer[size:]
        if not self._buffer:
            self._more.clear()
        self._in_flight = len(batch)
        try:
            taken = await self._write(batch, self._taking)
        except BaseException:
            self._buffer = batch + self._buffer  # cancelled before an answer: still to be written
            self._more.set()
            raise
        finally:
            self._in_flight = 0
        self._written([outcome.item for outcome in batch], taken)

    async def _write(self, batch: Sequence[Outcome], taking: Taking | None) -> Sequence[Item]:
        failpoint("before_finish")
        started = monotonic()
        try:
            refused, taken = await self._until_answered(batch, taking)
        except Exception as error:  # the boundary: whatever it was, the neighbours are written
            await self._write_singly(batch, error, alone=taking is None)
            return ()
        failpoint("after_finish")
        latency_ms = (monotonic() - started) * 1000
        self._events.emit(Finished(self._queue.name, len(batch), len(refused), latency_ms))
        if taken:
            self._events.emit(Claimed(self._queue.name, len(taken), latency_ms))
        self._count(batch, {item.key for item in refused})
        return taken

    async def _write_singly(
        self, batch: Sequence[Outcome], error: Exception, *, alone: bool
    ) -> None:
        # One outcome that the database will not take must not hold up its neighbours, nor may what
        # was to be claimed with it. Alone and refused again, it is given up: its lease ends and the
        # attempt is recorded as a zombie.
        if len(batch) > 1 or not alone:
            for outcome in batch:
                await self._write([outcome], None)
            return
        self.counts["abandoned"] += 1
        self._events.emit(FinishFailed(self._queue.name, batch[0].item.id, type(error).__name__))

    def _count(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        for outcome in batch:
            if outcome.verdict is DONE and not lost:
                self.counts["finished"] += 1
                continue
            name = verdict_name(outcome.verdict)
            if outcome.item.key not in lost:
                self.counts[_COUNTED_AS[name]] += 1
                self._tell_death(outcome)
                continue
            self.counts["stale"] += 1
            item = outcome.item
            self._events.emit(FinishRefused(self._queue.name, item.id, item.lease.epoch, name))

    def _tell_death(self, outcome: Outcome) -> None:
        """Told when it is written, not when it is decided: until then the item is not dead."""
        item, verdict = outcome.item, outcome.verdict
        if getattr(self._queue, "tells_deaths", False):
            return  # what became of it is not in the verdict alone
        if isinstance(verdict, Reject):
            code = verdict.code
        elif isinstance(verdict, Retry) and ends_at_limit(self._queue, item):
            code = "MAX_ATTEMPTS"
        else:
            return
        self._events.emit(ItemDied(self._queue.name, item.topic, item.id, item.attempt, code))

    async def _until_answered(
        self, batch: Sequence[Outcome], taking: Taking | None
    ) -> tuple[Sequence[Item], Sequence[Item]]:
        # Finishing is a compare-and-set that recognises its own token, so repeating it after a lost
        # connection is right whether or not the first try was committed.
        for delay_s in Backoff(base_s=0.1, cap_s=2.0).delays_s():
            try:
                async with self._database.connection() as conn:
                    skip = taking.skip() if taking is not None else None
                    if taking is None or skip is None:
                        return await self._queue.finish(conn, batch), ()
                    return await taking.queue.finish_and_claim(
                        conn, batch, owner=taking.owner, skip=skip
                    )
            except PASSING_ERRORS as error:
                self._events.emit(Disconnected(self._queue.name, type(error).__name__, delay_s))
                await asyncio.sleep(delay_s)
        raise AssertionError("delays are endless")
