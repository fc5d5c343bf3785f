"""The loop that claims, handles and finishes one queue.

Four tasks share the work and nothing else: the claimer fills the lanes, the lanes run handlers, the
finisher writes outcomes in batches, the keeper extends leases. An item claimed is always in exactly
one of: waiting in a lane, running, waiting to be written. Nothing of it needs to survive: a worker
that dies leaves leases behind, and those end.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from time import monotonic
from uuid import UUID

from penstock.kernel.backoff import Backoff
from penstock.kernel.database import PASSING_ERRORS, Database
from penstock.kernel.events import (
    Claimed,
    Disconnected,
    Events,
    HandlerRaised,
    Reconnected,
    Released,
    WokeUp,
)
from penstock.kernel.failpoints import failpoint
from penstock.kernel.finisher import Finisher, Taking, handled
from penstock.kernel.handler import Answer, Back, Check, Committed, Handler, Lost, Roster
from penstock.kernel.keeper import Keeper
from penstock.kernel.lanes import SUCCESSIVE_WINDOW_S, WINDOW_S, Lane
from penstock.kernel.limits import Limits
from penstock.kernel.queue import Item, Outcome, Policy, Queue, Successive
from penstock.kernel.report import WorkReport
from penstock.kernel.tending import Tender
from penstock.kernel.verdict import DONE, Reject, Retry, Verdict
from penstock.kernel.wakeup import Wakeup


class Pump:
    """Works one queue with handlers by lane, or by topic. Build, `run`, `stop`; not reusable.

    A roster brings further handlers while it runs, changes them and takes them away.
    """

    def __init__(
        self,
        queue: Queue,
        handlers: Mapping[str, Handler],
        *,
        database: Database,
        events: Events,
        policy: Policy,
        owner: UUID,
        limits: Limits,
        roster: Roster | None = None,
    ) -> None:
        self.queue = queue
        self._roster = roster
        self.wakeup = Wakeup((limits.poll_ms or policy.poll_ms) / 1000)
        self._database = database
        self._events = events
        self._owner = owner
        self._limits = limits
        self._successive = policy.successive
        self._backoff = Backoff(policy.backoff_base_s, policy.backoff_cap_s)
        self._lanes = {topic: self._lane(handler) for topic, handler in handlers.items()}
        self._rostered: set[str] = set()
        self._held: dict[int, Item] = {}
        self._back: list[Item] = []
        self._counts: Counter[str] = Counter()
        self._moved = asyncio.Event()
        self._stopping = asyncio.Event()
        self._deadline = inf
        self._finisher = Finisher(
            queue,
            database,
            events,
            batch=limits.batch,
            flush_age_s=policy.flush_age_s,
            written=self._forget,
            taking=Taking(queue, owner, self._full) if isinstance(queue, Successive) else None,
        )
        self._tender = Tender(queue, database, events, brought=self.wakeup.ring)
        self._keeper = Keeper(
            queue, database, events, lease_s=policy.lease_s, held=self._held.values
        )

    def _lane(self, handler: Handler) -> Lane:
        window_s = SUCCESSIVE_WINDOW_S if self._successive else WINDOW_S
        size = 2 * self._limits.batch
        return Lane(handler, size, self._on_answers, self._on_failure, window_s)

    @property
    def held_count(self) -> int:
        """How many items this pump has claimed and not yet ended."""
        return len(self._held)

    def stop(self) -> None:
        """Claim nothing more; `run` drains and returns."""
        self._stopping.set()
        self._moved.set()
        self.wakeup.ring()

    async def run(self) -> WorkReport:
        """Work until stopped, or until the limits are reached; then drain."""
        background = [
            asyncio.create_task(self._finisher.run()),
            asyncio.create_task(self._keeper.run()),
            asyncio.create_task(self._tender.run()),
        ]
        claimer = asyncio.create_task(self._claim_until_stopped())
        try:
            # Should one of them fail, the pump fails: half a pump would hold leases and do nothing.
            await asyncio.wait({claimer, *background}, return_when=asyncio.FIRST_COMPLETED)
            for task in (claimer, *background):
                if task.done():
                    task.result()
            await self._drain()
        finally:
            # After a failure lanes may still be running: without a finisher and a keeper they would
            # work for nothing, so they end too, and what had not started goes back.
            running = [task for lane in self._lanes.values() for task in lane.tasks]
            unstarted = [item for lane in self._lanes.values() for item in lane.take_unstarted()]
            for task in (claimer, *background, *running):
                task.cancel()
            await asyncio.gather(claimer, *background, *running, return_exceptions=True)
            await self._release(unstarted)
            await self._tender.last()
            if self._roster is not None:
                await self._roster.close()
        return WorkReport.of(self._counts + self._finisher.counts)

    # claiming

    async def _claim_until_stopped(self) -> None:
        if self._limits.deadline_s is not None:
            self._deadline = monotonic() + self._limits.deadline_s
        while not self._ending():
            await self._look()
            await self._give_back()
            limit = self._claimable()
            if limit <= 0:
                if self._nothing_to_come():
                    return
                await self._wait_for_movement()
                continue
            # Asked before the claim: what ends meanwhile may let the next of its key go.
            idle = not self._held
            self._moved.clear()
            self.wakeup.looking()
            items = await self._claim(limit)
            if items:
                self._dispatch(items)
                if idle:  # the first to come need not wait until more has been asked for
                    await asyncio.sleep(0)
                # Of a queue in which one lets the next go, that was all there is: to ask again
                # before anything ends would find nothing, and be in the way when it does.
                if len(items) == limit or not self._successive:
                    continue
            if self._limits.until_idle:
                if idle and not items:
                    return
                await self._wait_for_movement()
            else:
                by = await self.wakeup.wait(self._ready)
                self._events.emit(WokeUp(self.queue.name, by))

    def _nothing_to_come(self) -> bool:
        if self._left() == 0:
            return True
        return self._limits.until_idle and all(lane.closed for lane in self._lanes.values())

    async def _give_back(self) -> None:
        if not self._back:
            return
        back, self._back = self._back, []
        await self._release(back)
        self._forget(back)  # also when that failed: nobody may extend these any longer

    async def _look(self, *, idle: bool = False) -> None:
        """Let the lanes be what the roster says; what waits in one that goes is given back."""
        if self._roster is None:
            return
        wanted = await self._roster.look(patient=self._limits.until_idle, idle=idle)
        if wanted is None:
            return
        for name in self._rostered - wanted.keys():
            self._lanes[name].closed = True
            self._back += self._lanes[name].take_unstarted()
        for name, handler in wanted.items():
            lane = self._lanes.get(name)
            if lane is None:
                self._lanes[name] = self._lane(handler)
            else:
                lane.handler, lane.closed = handler, False
        self._rostered = set(wanted)

    def _ending(self) -> bool:
        return self._stopping.is_set() or monotonic() >= self._deadline

    def _claimable(self) -> int:
        if len(self._finisher) > 4 * self._limits.batch:
            return 0  # the database does not take outcomes; do not pile more work on top
        room = max((lane.room() for lane in self._lanes.values()), default=0)
        left = self._left()
        return min(room, self._limits.batch, room if left is None else left)

    def _left(self) -> int | None:
        """How many items may still be claimed; None when there is no end."""
        if self._limits.items is None:
            return None
        return max(0, self._limits.items - self._counts["claimed"])

    async def _wait_for_movement(self) -> None:
        # Cleared afterwards: what moved while a claim was on its way must not be slept over.
        try:
            await asyncio.wait_for(self._moved.wait(), 0.05)
        except TimeoutError:
            return
        self._moved.clear()

    async def _claim(self, limit: int) -> Sequence[Item]:
        room = {topic: lane.room() for topic, lane in self._lanes.items()}
        full = [topic for topic, free in room.items() if not free]
        if self._roster is not None:
            self._roster.offer(room, self._left())
        for lane in self._lanes.values():
            lane.adapt()
        started = monotonic()
        items: Sequence[Item] = ()
        down_since: float | None = None
        for delay_s in Backoff(base_s=0.1, cap_s=2.0).delays_s():
            try:
                async with self._database.connection() as conn:
                    items = await self.queue.claim(conn, limit=limit, owner=self._owner, skip=full)
                break
            except PASSING_ERRORS as error:
                down_since = down_since or monotonic()
                self._events.emit(Disconnected(self.queue.name, type(error).__name__, delay_s))
                if self._ending():
                    return ()
                await asyncio.sleep(delay_s)
        if down_since is not None:
            self._events.emit(Reconnected(self.queue.name, monotonic() - down_since))
        if items:
            latency_ms = (monotonic() - started) * 1000
            self._events.emit(Claimed(self.queue.name, len(items), latency_ms))
        return items

    def _dispatch(self, items: Sequence[Item], *, late: bool = False) -> None:
        """Hand items to their lanes; those that came too late are only held, for the drain."""
        failpoint("after_claim")
        self.wakeup.worked()
        self._counts["claimed"] += len(items)
        by_lane: dict[str, list[Item]] = {}
        for item in items:
            before = self._held.get(item.key)
            if before is not None:
                before.lease.lost = True  # its lease ended unnoticed, and we took it over ourselves
            self._held[item.key] = item
            by_lane.setdefault(item.lane or item.topic, []).append(item)
        if late:
            return
        for name, group in by_lane.items():
            if name in self._lanes:
                self._lanes[name].put(group)
            else:
                self._back += group  # its route was changed while it was being claimed

    async def _ready(self) -> bool:
        if self._stopping.is_set():
            return True
        try:
            async with self._database.connection() as conn:
                ready = await self.queue.ready(conn)
        except PASSING_ERRORS:
            return True  # let the claim meet the error: it waits and reports
        if not ready:
            await self._look(idle=True)  # now, so that the next event need not wait for it
        return ready or bool(self._back)

    # outcomes

    def _on_answers(
        self, items: Sequence[Item], answers: Sequence[Answer], latency_ms: float
    ) -> None:
        # Of a successive queue, only what is written lets something be claimed.
        if not self._successive and self._claimable() > 0:
            self._moved.set()
        if all(answer is DONE for answer in answers):  # nearly always
            self._finisher.add(*(Outcome(item, DONE) for item in items))
        else:
            for item, answer in zip(items, answers, strict=True):
                self._on_answer(item, answer)
        if self._events.active:
            for item, answer in zip(items, answers, strict=True):
                if not isinstance(answer, Back):
                    self._events.emit(handled(self.queue.name, item, answer, latency_ms=latency_ms))

    def _on_answer(self, item: Item, answer: Answer) -> None:
        match answer:
            case Committed():
                self._counts["finished"] += 1
                self._forget([item])
            case Lost():
                self._counts["stale"] += 1
                self._forget([item])
            case Back():
                self._back.append(item)
                self.wakeup.ring()
            case Check():
                self._finish(item, DONE)
            case _:
                self._finish(item, answer)

    def _on_failure(self, items: Sequence[Item], error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            return  # the drain releases them
        for item in items:
            self._events.emit(
                HandlerRaised(
                    self.queue.name, item.topic, item.id, item.attempt, type(error).__name__
                )
            )
            self._finish(item, Retry(code=type(error).__name__.upper()[:40]))

    def _finish(self, item: Item, verdict: Verdict) -> None:
        if isinstance(verdict, Retry):
            lane = self._lanes[item.lane or item.topic]
            if item.attempt >= lane.handler.max_attempts:
                verdict = Reject("MAX_ATTEMPTS", verdict.reason)
        delay_s = 0.0
        if isinstance(verdict, Retry):
            after_s = verdict.after.total_seconds() if verdict.after is not None else None
            delay_s = self._backoff.delay_s(item.attempt, retry_after_s=after_s)
        self._finisher.add(Outcome(item, verdict, delay_s))

    def _full(self) -> Sequence[str] | None:
        """The lanes without room; None when nothing more may be claimed, or only so many."""
        if self._ending() or self._limits.items is not None:
            return None
        return [name for name, lane in self._lanes.items() if not lane.room()]

    def _forget(self, items: Sequence[Item], taken: Sequence[Item] = ()) -> None:
        """Let go of what has ended, and work on what was claimed in its place."""
        for item in items:
            # Not by key alone: the item may have been claimed anew since.
            if self._held.get(item.key) is item:
                del self._held[item.key]
        if not taken or len(taken) < len(items):
            self._moved.set()
            if self._successive:
                self.wakeup.ring("busy")
            elif any(item.ordering_key is not None for item in items):
                self.wakeup.ring()  # the next of its key may go now
        if taken:
            self._dispatch(taken, late=self._ending())

    # the end

    async def _drain(self) -> None:
        """Release what has not started, let the rest end, release what does not end in time."""
        deadline = monotonic() + self._limits.drain_s
        unstarted = [item for lane in self._lanes.values() for item in lane.take_unstarted()]
        await self._release(unstarted)
        running = {task for lane in self._lanes.values() for task in lane.tasks}
        if running:
            await asyncio.wait(running, timeout=max(0.0, deadline - monotonic()))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        while len(self._finisher) and monotonic() < deadline + 5:
            await self._wait_for_movement()
        await self._release(list(self._held.values()))
        self._counts["abandoned"] += len(self._held)

    async def _release(self, items: list[Item]) -> None:
        if not items:
            return
        try:
            async with self._database.connection() as conn:
                count = await self.queue.release(conn, items)
        except PASSING_ERRORS:
            return  # their leases end by themselves
        self._counts["released"] += count
        self._events.emit(Released(self.queue.name, count))
        self._forget(items)
