"""Handle what was published, inside a test: with a worker, or on the test's own transaction."""

import warnings
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast
from uuid import UUID

from penstock.application import Penstock, QueueName
from penstock.kernel.codec import decoder
from penstock.kernel.connections import AsyncConn, adapt
from penstock.kernel.database import Database, PooledConnection
from penstock.kernel.errors import WrongUsage
from penstock.kernel.event import Event
from penstock.kernel.handler import Answer, Back, Check, Committed, Handler, Lost
from penstock.kernel.ids import uuid7
from penstock.kernel.lending import Lending
from penstock.kernel.queue import Connection, Item, Outcome
from penstock.kernel.report import WorkReport
from penstock.kernel.tx import Tx
from penstock.kernel.verdict import DONE, Done, Reject, Retry, Unknown
from penstock.kernel.worker import Assignment
from penstock.outbox.model import headers_of
from penstock.outbox.topics import Topic

T = TypeVar("T")
CLAIM = 200
# Inside a transaction with changes of its own the queues do no housekeeping; here it is wanted.
_BRING_BACK = {
    "outbox": "select app.outbox_reap(true) + app.outbox_bring_due(true) as count",
    "inbox": "select webhook.inbox_reap(true) + webhook.inbox_bring_due(true) as count",
}
_COUNTED_AS = {Done: "finished", Retry: "retried", Reject: "rejected", Unknown: "held"}
_PUBLISHED = (
    "select id::text, topic, payload::text, headers::text, created_at, ordering_key,"
    " tenant_id::text from app.outbox_all where topic = $1::text and event_id is null order by seq"
)


async def drain(
    ps: Penstock, conn: "AsyncConn | None" = None, *, only: Collection[QueueName] = ()
) -> WorkReport:
    """Handle everything that is ready, then return what was done.

    Without `conn` a worker does it, over committed events. With `conn` everything happens on your
    open transaction, one item after the other: what you published and did not commit is claimed,
    handled and finished there, and your rollback undoes it. Handlers that ask for `tx` get a
    savepoint of that connection; for those it has to be asyncpg's.
    """
    if conn is None:
        async with ps:
            report = await ps.work(only=only, until_idle=True)
        return _told(ps, report)
    counts: Counter[str] = Counter()
    borrowed = _Borrowed(conn)
    with ThreadPoolExecutor(1) as threads:
        lending = Lending(
            settings=ps.settings,
            database=borrowed,
            resources=ps.resources,
            events=ps.events,
            threads=lambda: threads,
            hooks=ps.hooks,
        )
        parts = ps.parts(only)
        async with ps.resources.opened([kind for part in parts for kind in part.kinds()]):
            for part in parts:
                assignment = await part.assignment(lending)
                if assignment is not None:
                    await _drain(assignment, borrowed, counts)
    return _told(ps, WorkReport.of(counts))


def _told(ps: Penstock, report: WorkReport) -> WorkReport:
    """A test that finds nothing done should learn that nobody was there to do it."""
    if report == WorkReport.of(Counter()) and not (
        ps.outbox.registrations or ps.inbox.registrations or ps.payments.rails
    ):
        warnings.warn(
            "drain did nothing: the application has no handlers; with the fixture `ps`, say in the"
            " ini file which one is tested: penstock_app = module:attribute",
            stacklevel=3,
        )
    return report


class _Borrowed(Database):
    """The user's connection in the place of a database; transactions are savepoints."""

    def __init__(self, conn: AsyncConn) -> None:
        super().__init__("postgresql:///borrowed", size=1)
        self.refused: WrongUsage | None = None
        self._conn = conn

    def face(self) -> Connection:
        """The user's connection, behind the one face of all drivers."""
        return adapt(self._conn)

    @asynccontextmanager
    async def connection(self, *, timeout_s: float = 10.0) -> AsyncIterator[PooledConnection]:
        """The user's connection in the place of a pooled one."""
        del timeout_s
        yield cast(PooledConnection, self.face())

    @asynccontextmanager
    async def transaction(self, *, timeout_s: float = 10.0) -> AsyncIterator[PooledConnection]:
        """A savepoint in the user's transaction."""
        del timeout_s
        raw: Any = self._conn.connection if isinstance(self._conn, Tx) else self._conn
        if not hasattr(raw, "is_in_transaction"):
            self.refused = WrongUsage(
                "a handler that asks for tx can be drained on an asyncpg connection only",
                todo="pass asyncpg's connection, or drain without conn after a commit.",
            )
            raise self.refused
        async with raw.transaction():
            yield raw


async def _drain(assignment: Assignment, borrowed: _Borrowed, counts: "Counter[str]") -> None:
    queue, owner = assignment.queue, uuid7()
    conn = borrowed.face()
    if queue.name in _BRING_BACK:
        await conn.fetch(_BRING_BACK[queue.name])
    while items := await queue.claim(conn, limit=CLAIM, owner=owner):
        counts["claimed"] += len(items)
        for handler, group in _groups(assignment, items):
            answers = await handler.handle(group)
            if borrowed.refused is not None:  # a handler's answer would hide it as a Retry
                raise borrowed.refused
            outcomes = _outcomes(group, answers, counts)
            refused = await queue.finish(conn, outcomes) if outcomes else ()
            counts["stale"] += len(refused)


def _groups(
    assignment: Assignment, items: Sequence[Item]
) -> Iterator[tuple[Handler, Sequence[Item]]]:
    by_lane: dict[str, list[Item]] = {}
    for item in items:
        by_lane.setdefault(item.lane or item.topic, []).append(item)
    for name, group in by_lane.items():
        handler = assignment.handlers[name]
        for start in range(0, len(group), handler.size):
            yield handler, group[start : start + handler.size]


def _outcomes(
    items: Sequence[Item], answers: Sequence[Answer], counts: "Counter[str]"
) -> list[Outcome]:
    """What is left to write; a retry waits an hour, so that one drain tries everything once."""
    found: list[Outcome] = []
    for item, answer in zip(items, answers, strict=True):
        if isinstance(answer, Committed):
            counts["finished"] += 1
        elif isinstance(answer, Lost | Back):
            counts["stale"] += 1
        else:
            verdict = DONE if isinstance(answer, Check) else answer
            counts[_COUNTED_AS[type(verdict)]] += 1
            after = verdict.after if isinstance(verdict, Retry) else None
            delay_s = 3600.0 if after is None else after.total_seconds()
            found.append(Outcome(item, verdict, delay_s))
    return found


async def published(conn: AsyncConn, topic: Topic[T], **match: object) -> list[Event[T]]:
    """The events of a topic that this connection can see, finished or not, oldest first.

    Each keyword must equal the payload's field of that name.
    """
    decode = decoder(topic.model)
    found: list[Event[T]] = []
    for row in await adapt(conn).fetch(_PUBLISHED, topic.name):
        raw = str(row["payload"]).encode()
        data: T = decode(raw)
        if all(_field(data, name) == wanted for name, wanted in match.items()):
            found.append(_event(row, data, raw))
    return found


def _event(row: Any, data: T, raw: bytes) -> Event[T]:
    return Event(
        UUID(row["id"]),
        row["topic"],
        data,
        headers_of(row["headers"]),
        row["created_at"],
        row["ordering_key"],
        UUID(row["tenant_id"]) if row["tenant_id"] else None,
        raw,
    )


def _field(data: object, name: str) -> object:
    if isinstance(data, dict):
        return data.get(name)
    return getattr(data, name)
