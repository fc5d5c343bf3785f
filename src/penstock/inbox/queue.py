"""The inbox as a queue: the kernel's verbs over the inbox's SQL functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, assert_never
from uuid import UUID, uuid4

import msgspec

from penstock.inbox import store
from penstock.inbox.model import QUEUE
from penstock.kernel import deaths
from penstock.kernel.connections import (
    AsyncConn,
    SyncConn,
    adapt,
    adapt_sync,
    require_transaction,
    require_transaction_sync,
)
from penstock.kernel.database import Database
from penstock.kernel.event import Effect
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Connection, Item, Outcome, Policy, Tending
from penstock.kernel.verdict import Done, Reject, Retry, Unknown

MAX_ATTEMPTS = "max_attempts_exceeded"
EVENT_ID_HEADER = "penstock-event-id"
SOURCE_HEADER = "penstock-source"


@dataclass(frozen=True, slots=True)
class Line:
    """What one handler takes: the events of a source whose type fits a pattern."""

    source: str
    pattern: str

    @property
    def name(self) -> str:
        """The topic under which the pump knows it."""
        return f"{self.source}/{self.pattern}"

    @property
    def like(self) -> str:
        """The pattern as LIKE understands it; only the star means something."""
        escaped = self.pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return escaped.replace("*", "%")

    @property
    def weight(self) -> tuple[bool, int]:
        """Sorts the most particular pattern first: without a star, then the longer one."""
        return "*" in self.pattern, -len(self.pattern)


class InboxQueue:
    """Claims the events that fit the given lines (None: all); every verb is one round trip."""

    name = QUEUE
    dies_at_limit = True

    def __init__(self, lines: Sequence[Line] | None = None) -> None:
        self._lines = None if lines is None else sorted(lines, key=lambda line: line.weight)
        self._waiting: frozenset[Line] = frozenset()

    def serve(self, lines: Sequence[Line], *, waiting: Sequence[Line] = ()) -> None:
        """Claim for these lines from now on; what fits one of the `waiting` ones is left alone."""
        self._lines = sorted((*lines, *waiting), key=lambda line: line.weight)
        self._waiting = frozenset(waiting)

    async def policy(self, conn: Connection) -> Policy:
        """The numbers this queue runs by."""
        row = await store.policy(conn)
        return Policy(
            lease_s=float(row["lease_s"]),
            max_attempts=row["max_attempts"],
            backoff_base_s=float(row["backoff_base_s"]),
            backoff_cap_s=float(row["backoff_cap_s"]),
            poll_ms=row["poll_ms"],
            notify=row["notify"],
        )

    async def claim(
        self, conn: Connection, *, limit: int, owner: UUID, skip: Sequence[str] = ()
    ) -> Sequence[Item]:
        """Lease up to `limit` ready events under a fresh token, oldest first."""
        before = monotonic()
        lines = self._lines
        if lines is None:
            rows = await store.claim(conn, limit, uuid4(), owner, None, None, None)
        else:
            rows = await store.claim(
                conn,
                limit,
                uuid4(),
                owner,
                [line.source for line in lines],
                [line.like for line in lines],
                [line.name in skip or line in self._waiting for line in lines],
            )
        return [_item(row, lines, before) for row in rows]

    async def finish(self, conn: Connection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        """Write outcomes where the token still matches; return the items that were refused."""
        done: list[Item] = []
        failed: list[Outcome] = []
        for outcome in outcomes:
            # Said to be finished on the user's connection: only the database knows whether it is.
            if isinstance(outcome.verdict, Done) and not outcome.item.finished_by_handler:
                done.append(outcome.item)
            else:
                failed.append(outcome)
        refused: set[UUID] = set()
        if done:
            refused.update(await store.finish(conn, *_keys(done)))
        if failed:
            refused.update(await store.mark_failed(conn, *_failures(failed)))
        return [outcome.item for outcome in outcomes if outcome.item.id in refused]

    async def extend(self, conn: Connection, items: Sequence[Item]) -> Sequence[Item]:
        """Prolong the leases still held; return the items that are lost."""
        before = monotonic()
        lost_ids, lease_s = await store.extend(conn, *_keys(items))
        lost = set(lost_ids)
        for item in items:
            if item.id not in lost:
                item.lease.deadline = before + lease_s
        return [item for item in items if item.id in lost]

    async def release(self, conn: Connection, items: Sequence[Item]) -> int:
        """Give items back that have not started; the attempt does not count."""
        return await store.release(conn, *_keys(items))

    async def ready(self, conn: Connection) -> bool:
        """Whether a claim now might find something."""
        return await store.ready(conn)

    async def tend(self, conn: Connection) -> Tending:
        """Reap, bring back due rows, sweep, keep the watermark; a no-op when not yet due."""
        row = await store.tend(conn)
        died = await deaths.taken(conn, QUEUE)
        return Tending(row["reaped"], row["due"], row["swept"], died)


class InboxEnding:
    """Ends events inside a transaction of the user's, on the user's connection."""

    async def finish(self, conn: AsyncConn, items: Sequence[Item]) -> None:
        """Finish the events in the open transaction; raises LeaseLost, which undoes it."""
        user = adapt(conn)
        await require_transaction(user)
        await store.finish_strict(user, *_keys(items))

    def finish_sync(self, conn: SyncConn, items: Sequence[Item]) -> None:
        """The same on a blocking connection."""
        user = adapt_sync(conn)
        require_transaction_sync(user)
        store.finish_strict_sync(user, *_keys(items))


class InboxEffects:
    """Records outside calls, each step committed by itself: a crash in between leaves a trace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, item: Item, effect: Effect) -> Effect:
        """Record the start; raises LeaseLost when another worker owns the event."""
        async with self._database.connection() as conn:
            row = await store.begin_effect(
                conn, item.id, item.lease.token, name=effect.name, key=effect.key
            )
        return Effect(
            effect.name, row["idempotency_key"], row["state"] == "done", row["external_ref"]
        )

    async def end(self, item: Item, effect: Effect) -> None:
        """Record that the answer has come."""
        async with self._database.connection() as conn:
            await store.end_effect(
                conn,
                item.id,
                name=effect.name,
                key=effect.key,
                external_ref=effect.external_ref,
            )


def _item(row: Mapping[str, Any], lines: Sequence[Line] | None, before: float) -> Item:
    # Unpacking values by position costs a third of looking each up by name.
    (
        seq,
        id_,
        event_id,
        source,
        event_type,
        route,
        raw_body,
        payload,
        headers,
        received_at,
        attempt,
        max_attempts,
        token,
        epoch,
        expires_at,
        lease_s,
    ) = row.values()
    return Item(
        seq,
        id_,
        event_type if lines is None else lines[route - 1].name,
        raw_body if payload is None else payload.encode(),
        _headers(headers, event_id=event_id, source=source),
        received_at,
        attempt,
        max_attempts,
        Lease(token, epoch, expires_at, before + lease_s),
        kind=event_type,
        raw=raw_body,
    )


def _headers(raw: str, *, event_id: str, source: str | None) -> dict[str, str]:
    """The kept headers of the request, and what the provider calls the event."""
    kept: dict[str, Any] = msgspec.json.decode(raw)
    kept[EVENT_ID_HEADER] = event_id
    kept[SOURCE_HEADER] = source or ""
    return {name: value if isinstance(value, str) else str(value) for name, value in kept.items()}


def _keys(items: Sequence[Item]) -> tuple[list[UUID], list[UUID]]:
    return [item.id for item in items], [item.lease.token for item in items]


def _failures(outcomes: Sequence[Outcome]) -> list[object]:
    told = [_told(outcome) for outcome in outcomes]
    return [
        *_keys([outcome.item for outcome in outcomes]),
        [verdict for verdict, _, _ in told],
        [_asked_delay_s(outcome) for outcome in outcomes],
        [store.storable(code, 60) for _, code, _ in told],
        [store.storable(error) for _, _, error in told],
    ]


def _asked_delay_s(outcome: Outcome) -> float | None:
    """What a handler asked for, bounded by the pump; None leaves it to the seed's schedule."""
    asked = isinstance(outcome.verdict, Retry) and outcome.verdict.after is not None
    return outcome.delay_s if asked else None


def _told(outcome: Outcome) -> tuple[str, str, str]:
    """Verdict, code and error of one outcome, in the words of the SQL function."""
    match outcome.verdict:
        case Done():
            return "check", "NOT_COMMITTED", "the handler's own transaction was not committed"
        case Retry(reason=reason, code=code):
            return "retry", code, f"{code}: {reason}" if reason else code
        case Reject(code=code, reason=reason):
            return "reject", MAX_ATTEMPTS if code == "MAX_ATTEMPTS" else code, reason
        case Unknown(reason=reason):
            return "unknown", "UNKNOWN", reason
        case _:
            assert_never(outcome.verdict)
