"""Intake's pgmq queue behind the kernel's verbs. The read count is the lease's epoch."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from time import monotonic
from typing import assert_never, cast
from uuid import UUID

from penstock.intake import engine
from penstock.intake.ledger import Ledger
from penstock.intake.messages import (
    LANE_FULL,
    LEDGER_LANE,
    QUEUE,
    WEBHOOK_LANE,
    Message,
    message_of,
)
from penstock.kernel.events import (
    Events,
    ItemDied,
    ReservationConfirmed,
    ReservationDead,
    ReservationReleased,
    ReservationRetried,
)
from penstock.kernel.queue import Connection, Item, Outcome, Policy, Tending
from penstock.kernel.verdict import Done, Reject, Retry, Unknown

# Extension is cheap, and pools with short leases may come while a worker runs.
LEASE_LOOK_S = 5.0
SEEN_LATELY_S = 30.0
PARK_S = 5.0
INTERRUPTED_S = 1.0


class IntakeQueue:
    """Claims messages of all pools; `tally` counts how they ended."""

    name = QUEUE
    tells_deaths = True

    def __init__(self, ledger: Ledger, events: Events) -> None:
        self.tally: Counter[str] = Counter()
        self._ledger = ledger
        self._events = events
        self._seen_at: dict[str, float] = {}

    async def policy(self, conn: Connection) -> Policy:
        """The numbers this queue runs by; leases are kept at the pace of the shortest."""
        row = await engine.policy(conn)
        return Policy(
            lease_s=min(LEASE_LOOK_S, float(row["lease_least_s"] or row["lease_s"])),
            max_attempts=row["max_attempts"],
            backoff_base_s=float(row["backoff_base_s"]),
            backoff_cap_s=float(row["backoff_cap_s"]),
            poll_ms=row["poll_ms"],
            notify=row["notify"],
        )

    async def claim(
        self, conn: Connection, *, limit: int, owner: UUID, skip: Sequence[str] = ()
    ) -> Sequence[Item]:
        """Lease up to `limit` messages; none while only such could come that cannot be worked."""
        del owner  # pgmq has no place for it
        if await self._would_fail(skip):
            return ()
        before = monotonic()
        messages = [message_of(row, before) for row in await engine.claim(conn, limit)]
        for topic in {message.topic for message in messages}:
            self._seen_at[topic] = before
        if not skip:
            return messages
        await self._park(conn, [message for message in messages if message.topic in skip])
        return [message for message in messages if message.topic not in skip]

    async def _would_fail(self, skip: Sequence[str]) -> bool:
        """Whether everything a claim is likely to bring has to wait anyway."""
        blocked = set(skip)
        if self._ledger.is_down and not await self._ledger.probe():
            blocked.add(LEDGER_LANE)
        if not blocked:
            return False
        since = monotonic() - SEEN_LATELY_S
        return not any(
            self._seen_at.get(lane, float("-inf")) > since
            for lane in (LEDGER_LANE, WEBHOOK_LANE)
            if lane not in blocked
        )

    async def _park(self, conn: Connection, messages: Sequence[Message]) -> None:
        """Put aside what its lane has no room for, so that the other lane's work gets through."""
        if messages:
            outcomes = [Outcome(message, Retry(code=LANE_FULL), PARK_S) for message in messages]
            await self._retry(conn, outcomes)

    async def finish(self, conn: Connection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        """Write outcomes where they still apply; return the items that were refused."""
        done: list[Message] = []
        retried: list[Outcome] = []
        dead: list[Outcome] = []
        released: list[Outcome] = []
        for outcome in outcomes:
            message = cast(Message, outcome.item)
            match outcome.verdict:
                case Done():
                    done.append(message)
                case Retry():
                    retried.append(outcome)
                case Reject() | Unknown():
                    (released if message.release else dead).append(outcome)
                case _:
                    assert_never(outcome.verdict)
        refused: set[int] = set()
        if released:
            kept, sold = await self._release(conn, released)
            dead += kept
            done += sold
        if done:
            refused |= await self._complete(conn, done)
        if retried:
            refused |= await self._retry(conn, retried)
        if dead:
            refused |= await self._bury(conn, dead)
        if not refused:
            return ()
        return [outcome.item for outcome in outcomes if outcome.item.key in refused]

    async def extend(self, conn: Connection, items: Sequence[Item]) -> Sequence[Item]:
        """Prolong the leases still held; return the items that are lost."""
        before = monotonic()
        held = await engine.extend(
            conn,
            [item.key for item in items],
            [item.lease.epoch for item in items],
            int(LEASE_LOOK_S),
        )
        for item in items:
            if item.key in held:
                item.lease.expires_at = held[item.key]
                item.lease.deadline = max(item.lease.deadline, before + int(LEASE_LOOK_S))
        return [item for item in items if item.key not in held]

    async def release(self, conn: Connection, items: Sequence[Item]) -> int:
        """Give messages back; the attempt counts only where a webhook has been called."""
        called = [item for item in items if cast(Message, item).called]
        unstarted = [item for item in items if not cast(Message, item).called]
        count = 0
        if called:
            verdict = Retry(code="INTERRUPTED", reason="the worker ended during the call")
            outcomes = [Outcome(item, verdict, INTERRUPTED_S) for item in called]
            count = len(called) - len(await self._retry(conn, outcomes))
        if not unstarted:
            return count
        return count + await engine.give_back(
            conn,
            [item.key for item in unstarted],
            [item.lease.epoch for item in unstarted],
            [item.lease.expires_at for item in unstarted],
        )

    async def ready(self, conn: Connection) -> bool:
        """Whether a claim now might find something that can be worked."""
        return not await self._would_fail(()) and await engine.ready(conn)

    async def tend(self, conn: Connection) -> Tending:
        """Bring back what is due, sweep, keep the watermarks; a no-op when not yet due."""
        row = await engine.tend(conn)
        return Tending(row["reaped"], row["due"], row["swept"])

    # endings

    async def _complete(self, conn: Connection, messages: Sequence[Message]) -> set[int]:
        rows = await engine.complete(
            conn,
            [message.key for message in messages],
            [message.resource for message in messages],
            [message.id for message in messages],
        )
        stale = {row["msg_id"] for row in rows if row["outcome"] == "stale"}
        self.tally["confirmed"] += len(messages) - len(stale)
        if self._events.active:
            for message in messages:
                if message.key not in stale:
                    self._events.emit(
                        ReservationConfirmed(message.key, message.pool, message.id, message.attempt)
                    )
        return stale

    async def _retry(self, conn: Connection, outcomes: Sequence[Outcome]) -> set[int]:
        applied = await engine.retry(
            conn,
            [outcome.item.key for outcome in outcomes],
            [outcome.item.lease.epoch for outcome in outcomes],
            [outcome.delay_s for outcome in outcomes],
            [_code(outcome) for outcome in outcomes],
            [_reason(outcome) for outcome in outcomes],
        )
        self.tally["retried"] += len(applied)
        for outcome in outcomes:
            if outcome.item.key in applied and self._events.active:
                message = cast(Message, outcome.item)
                self._events.emit(
                    ReservationRetried(
                        message.key,
                        message.pool,
                        message.id,
                        message.attempt,
                        _code(outcome),
                        outcome.delay_s,
                    )
                )
        return {outcome.item.key for outcome in outcomes} - applied

    async def _bury(self, conn: Connection, outcomes: Sequence[Outcome]) -> set[int]:
        applied = await engine.reject(
            conn,
            [outcome.item.key for outcome in outcomes],
            [outcome.item.lease.epoch for outcome in outcomes],
            [_code(outcome) for outcome in outcomes],
            [_reason(outcome) or None for outcome in outcomes],
        )
        self.tally["dead"] += len(applied)
        for outcome in outcomes:
            if outcome.item.key in applied:
                message = cast(Message, outcome.item)
                code = _code(outcome)
                self._events.emit(
                    ReservationDead(message.key, message.pool, message.id, message.attempt, code)
                )
                self._events.emit(ItemDied(QUEUE, message.topic, message.id, message.attempt, code))
        return {outcome.item.key for outcome in outcomes} - applied

    async def _release(
        self, conn: Connection, outcomes: Sequence[Outcome]
    ) -> tuple[list[Outcome], list[Message]]:
        """End reservations for good; returns what must be dead-lettered and what was sold."""
        kept: list[Outcome] = []
        sold: list[Message] = []
        for code, group in groupby(sorted(outcomes, key=_code), key=_code):
            same = list(group)
            messages = [cast(Message, outcome.item) for outcome in same]
            ended = await engine.release(
                conn,
                [message.resource for message in messages],
                [message.id for message in messages],
                f"refused: {code}",
                [message.id for message in messages if message.cancelled],
                [message.key for message in messages],
            )
            for outcome, message in zip(same, messages, strict=True):
                assert message.resource is not None, "only whole messages are released"
                result = ended.get(message.resource, "gone")
                if result == "sold":
                    sold.append(message)
                elif result in ("released", "retired"):
                    self.tally["released"] += 1
                    self._events.emit(
                        ReservationReleased(message.key, message.pool, message.id, code, result)
                    )
                else:
                    kept.append(outcome)
        return kept, sold


def _code(outcome: Outcome) -> str:
    return str(getattr(outcome.verdict, "code", "UNKNOWN"))


def _reason(outcome: Outcome) -> str:
    return str(getattr(outcome.verdict, "reason", ""))
