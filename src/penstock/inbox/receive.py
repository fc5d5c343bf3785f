"""Takes deliveries in: believe or refuse, then store, then answer. Nothing unverified is stored.

Deliveries that arrive together are stored by one statement. The answer comes after its commit, so
whatever was answered with 2xx is there.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias
from uuid import UUID

import asyncpg
import msgspec

from penstock.inbox import store
from penstock.inbox.errors import DeliveryRefused, SourceOverLimit
from penstock.inbox.model import Arrival, SharedBody, Source, StoredEvent, Taken
from penstock.inbox.providers.scheme import (
    Headers,
    Reason,
    Rejected,
    Reply,
    Request,
    Verified,
    spend_as_if_verified,
)
from penstock.inbox.sources import DOUBTED_S, FRESH_S, Sender, Sources
from penstock.kernel.database import Database
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.events import DeliveryRejected, DeliveryTaken, Events
from penstock.kernel.gathering import Asker, Gathering, InOrder
from penstock.kernel.http_errors import OverCapacity, RequestRefused
from penstock.kernel.ids import uuid7
from penstock.kernel.queue import Connection

BATCH_MAX = 500
BATCH_BYTES_MAX = 8 * 1024 * 1024
WAITING_MAX = 10_000
WAITING_BYTES_MAX = 256 * 1024 * 1024
ANSWER_S = 8.0
QUERY_HEADER = ":query"
ALWAYS_KEPT = ("content-type", "user-agent", "traceparent")
_ACCEPTED = Reply()

End: TypeAlias = Callable[[Sequence[Taken]], Reply]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery on its way into the database."""

    arrivals: tuple[Arrival, ...]
    shared: SharedBody | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes on the wire."""
        own = sum(len(arrival.raw_body) for arrival in self.arrivals)
        return 2 * own + (len(self.shared.raw_body) if self.shared else 0)


class Reception:
    """One process's door for webhooks."""

    def __init__(
        self,
        database: Database,
        *,
        events: Events,
        env: Mapping[str, str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._events = events
        self._now = now
        self.sources = Sources(self._load, env=env, events=events)
        self._buckets: dict[UUID, _Bucket] = {}
        self._line = InOrder[Delivery, Sequence[Taken]](
            count_max=BATCH_MAX, weight=lambda item: item.weight, weight_max=BATCH_BYTES_MAX
        )
        self._gathering = Gathering(self._store, self._line)

    async def close(self) -> None:
        """Let those who wait get their answers."""
        await self._gathering.close()

    async def body_bytes_max(self) -> int:
        """What may be read before it is known who sends: the same for every name."""
        await self.sources.find("")
        return self.sources.body_bytes_max

    async def receive(self, name: str, request: Request) -> Reply:
        """Verify and store a delivery; returns after the commit.

        Raises DeliveryRefused, SourceOverLimit, OverCapacity, and DatabaseUnreachable when it is
        unknown whether the delivery is stored: the sender repeats it, and dedupe knows it.
        """
        sender, verdict = await self._judge(name, request, FRESH_S)
        if isinstance(verdict, Rejected) and self.sources.age_s > DOUBTED_S:
            # A source or a secret may be new: what is known is doubted before anybody is refused.
            sender, verdict = await self._judge(name, request, DOUBTED_S)
        if isinstance(verdict, Rejected) or sender is None:
            assert isinstance(verdict, Rejected), "nobody is believed without a source"
            self._events.emit(DeliveryRejected(sender.name if sender else "", verdict.reason))
            raise DeliveryRefused
        if verdict.reply is not None:
            return verdict.reply
        try:
            stored = self._gathering.ask(self._admitted(sender, request, verdict))
            return self._taken(sender, await stored)
        except (TimeoutError, asyncpg.PostgresError) as error:
            raise DatabaseUnreachable(type(error).__name__) from error

    def begin(self, name: str, request: Request, asker: Asker[Sequence[Taken]]) -> End | None:
        """The same for a delivery that is genuine by what is known, told to `asker`, and then.

        None where anything else has to be looked at; that takes the same time for every name.
        """
        if self.sources.age_s > FRESH_S:
            return None
        sender, verdict = self._verdict(self.sources.known(name), request)
        if sender is None or isinstance(verdict, Rejected) or verdict.reply is not None:
            return None
        self._gathering.put(self._admitted(sender, request, verdict), asker)
        return partial(self._taken, sender)

    async def _judge(
        self, name: str, request: Request, older_than_s: float
    ) -> tuple[Sender | None, Verified | Rejected]:
        return self._verdict(await self.sources.find(name, older_than_s=older_than_s), request)

    def _verdict(
        self, sender: Sender | None, request: Request
    ) -> tuple[Sender | None, Verified | Rejected]:
        if sender is None:
            spend_as_if_verified(request.body)
            return None, Rejected(Reason.SOURCE_UNKNOWN)
        reply = sender.provider.handshake(request, sender.tokens)
        if reply is not None:
            return sender, Verified(reply=reply)
        verdict = sender.provider.verify(
            request, sender.secrets, now_s=self._now(), tolerance_s=sender.tolerance_s
        )
        return sender, verdict

    def _check_limits(self, sender: Sender, request: Request) -> None:
        """Only genuine deliveries count: a forger uses up nobody's share."""
        if len(request.body) > sender.body_bytes_max:
            raise RequestRefused(
                f"the body is larger than {sender.body_bytes_max} bytes", status=413
            )
        if sender.rate_per_s is not None:
            bucket = self._buckets.get(sender.webhook_id)
            if bucket is None or bucket.rate_per_s != sender.rate_per_s:
                bucket = self._buckets[sender.webhook_id] = _Bucket(sender.rate_per_s)
            if not bucket.take():
                raise SourceOverLimit(f"more than {sender.rate_per_s:g} deliveries per second")

    def _admitted(self, sender: Sender, request: Request, verified: Verified) -> Delivery:
        """A delivery that may stand in line, to be stored together with whatever else waits."""
        self._check_limits(sender, request)
        line = self._line
        if line.unanswered >= WAITING_MAX or line.unanswered_weight >= WAITING_BYTES_MAX:
            raise OverCapacity
        return delivery_of(sender, request, verified)

    def _taken(self, sender: Sender, results: Sequence[Taken]) -> Reply:
        self._tell(sender, results)
        if "over_quota" in results:
            raise SourceOverLimit("as many events of this source wait as may")
        if "unknown_source" in results:
            self.sources.invalidate()
            raise DeliveryRefused
        assert "bad_event_id" not in results, "ids are bounded where they are read"
        return _ACCEPTED

    def _tell(self, sender: Sender, results: Sequence[Taken]) -> None:
        if not self._events.active:
            return
        for result in sorted(set(results)):
            count = results.count(result)
            self._events.emit(DeliveryTaken(sender.name, sender.provider.name, result, count))

    async def _load(self) -> Sequence[Source]:
        async with self._database.connection(timeout_s=ANSWER_S) as conn:
            return await store.sources(conn)

    async def _store(self, deliveries: Sequence[Delivery]) -> Sequence[Sequence[Taken]]:
        # Whoever comes while a call is in flight waits for that and then for its own.
        async with (
            asyncio.timeout(ANSWER_S / 2),
            self._database.connection(timeout_s=ANSWER_S / 2) as conn,
        ):
            try:
                return await _store_all(conn, deliveries)
            except (asyncpg.DataError, asyncpg.ProgramLimitExceededError):
                # One of them cannot be held: it must neither take the others along, nor come back
                # for days because it is answered with an error.
                return [await _store_alone(conn, delivery) for delivery in deliveries]


async def _store_all(conn: Connection, deliveries: Sequence[Delivery]) -> list[Sequence[Taken]]:
    arrivals = [arrival for delivery in deliveries for arrival in delivery.arrivals]
    shared = [delivery.shared for delivery in deliveries if delivery.shared is not None]
    taken = iter(await store.receive_many(conn, arrivals, shared))
    return [[next(taken) for _ in delivery.arrivals] for delivery in deliveries]


async def _store_alone(conn: Connection, delivery: Delivery) -> Sequence[Taken]:
    try:
        return (await _store_all(conn, [delivery]))[0]
    except (asyncpg.DataError, asyncpg.ProgramLimitExceededError):
        bare = tuple(replace(arrival, payload=None) for arrival in delivery.arrivals)
        return (await _store_all(conn, [Delivery(bare, delivery.shared)]))[0]


def delivery_of(sender: Sender, request: Request, verified: Verified) -> Delivery:
    """What is stored of a genuine delivery; of its headers only those of the allow-list."""
    kept = request.headers.kept(dict.fromkeys((*ALWAYS_KEPT, *sender.provider.headers_kept)))
    if sender.provider.signs_query and request.query:
        kept[QUERY_HEADER] = request.query
    split = verified.events[0].raw is not request.body
    delivery_id = uuid7() if split else None
    headers = msgspec.json.encode(kept).decode()
    signature = request.headers.hint(sender.provider.headers_kept[0])
    arrivals = tuple(
        Arrival(
            webhook_id=sender.webhook_id,
            event_id=event.event_id,
            event_type=event.event_type,
            raw_body=event.raw,
            payload=event.payload,
            body_sha256=hashlib.sha256(event.raw).digest(),
            signature=signature,
            headers=headers,
            content_type=kept.get("content-type", "")[:200],
            delivery_id=delivery_id,
        )
        for event in verified.events
    )
    return Delivery(arrivals, SharedBody(delivery_id, request.body) if delivery_id else None)


def still_genuine(sender: Sender, stored: StoredEvent) -> bool:
    """Whether a stored delivery verifies again, by its bytes, its headers and its own time."""
    headers = dict(stored.headers)
    query = headers.pop(QUERY_HEADER, "")
    request = Request(stored.raw_body, Headers.of(headers), query=query)
    verdict = sender.provider.verify(
        request,
        sender.secrets,
        now_s=stored.received_at.timestamp(),
        tolerance_s=sender.tolerance_s,
    )
    return isinstance(verdict, Verified)


class _Bucket:
    """So many per second, with a burst of one second's worth."""

    def __init__(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        self._most = max(1.0, rate_per_s)
        self._left = self._most
        self._at = time.monotonic()

    def take(self) -> bool:
        """Take one; false when none is left."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self.rate_per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
