"""Topics: publish in the transaction of the change, and handle what was published."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    get_origin,
    is_typeddict,
)
from uuid import UUID

import msgspec

from penstock.kernel.codec import decoder, encode
from penstock.kernel.connections import (
    AsyncConn,
    SyncConn,
    adapt,
    adapt_sync,
    require_transaction,
    require_transaction_sync,
)
from penstock.kernel.database import Database
from penstock.kernel.errors import BadHandler, BadPayload, WrongUsage
from penstock.kernel.event import Batch, Event
from penstock.kernel.handlers import Options, Registration
from penstock.kernel.ids import uuid7
from penstock.kernel.injection import Resources, plan_for
from penstock.kernel.lending import Lending
from penstock.kernel.plain import bind
from penstock.kernel.scheduler import Job
from penstock.kernel.traces import Traces
from penstock.kernel.worker import Assignment
from penstock.outbox import batches, destinations, store
from penstock.outbox.claims import Claims
from penstock.outbox.envelope import VERSION_HEADER
from penstock.outbox.errors import PayloadRefused
from penstock.outbox.model import QUEUE, Json, PublishOptions, Story
from penstock.outbox.queue import OutboxEnding, OutboxQueue
from penstock.outbox.registry import Registry
from penstock.outbox.relay import Relay
from penstock.outbox.routes import check_names, routes_of

T = TypeVar("T")
_OPTIONS = frozenset(PublishOptions.__annotations__)
R = TypeVar("R")
P = ParamSpec("P")

TOPIC_LENGTH_MAX = 200
_TOPIC = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:/-]{{0,{TOPIC_LENGTH_MAX - 1}}}")


class Outbox:
    """Events that exist exactly if the transaction that published them commits."""

    queue_name = QUEUE

    def __init__(self, resources: Resources, database: Callable[[], Database]) -> None:
        self._resources = resources
        self._database = database
        self._topics: dict[str, Topic[Any]] = {}
        self.registry = Registry()
        self.registrations: list[Registration] = []

    def topic(self, name: str, model: type[T], *, version: int = 1) -> "Topic[T]":
        """Declare a topic and the model of its payload; the same name twice is an error."""
        if not _TOPIC.fullmatch(name):
            raise WrongUsage(
                f"{name!r} is no name for a topic",
                todo=f"use 1 to {TOPIC_LENGTH_MAX} letters, digits and . _ - : / (orders.paid).",
            )
        if name in self._topics:
            raise WrongUsage(f"topic {name} is declared twice", todo="declare it once, import it.")
        topic = Topic(self, name, model, version=version)
        self._topics[name] = topic
        return topic

    async def publish(
        self, conn: AsyncConn, topic: str, data: Json, **options: Unpack[PublishOptions]
    ) -> UUID:
        """Publish JSON to a topic by name; for payloads without a model."""
        arguments = _arguments(topic, _encoded(data), version=1, options=options)
        user = adapt(conn)
        await require_transaction(user, autocommit_ok=options.get("autocommit_ok", False))
        return await store.publish(user, arguments)

    async def cancel(self, conn: AsyncConn, event: UUID, *, reason: str) -> bool:
        """Withdraw an event; false when it is in flight, finished, or not there."""
        return await store.cancel(adapt(conn), event, reason)

    async def story(self, event: UUID) -> Story:
        """Everything known about one event but its payload; raises NotFound."""
        async with self._database().connection() as conn:
            return msgspec.json.decode(await store.story(conn, event), type=Story)

    async def open(self, database: Database) -> None:
        """Keep the schemas of the topics declared so far; raises SchemaChanged if one does not fit.

        Where there is no outbox, or none for this login, nobody publishes and there is nothing to
        keep.
        """
        if not self._topics:
            return
        async with database.connection() as conn:
            if await store.may_put_schema(conn):
                await self.registry.register(conn, self._topics.values())

    def kinds(self) -> list[type]:
        """The resources that the handlers ask for."""
        asked = (r.plan.resources.values() for r in self.registrations)
        return list(dict.fromkeys(kind for kinds in asked for kind in kinds))

    async def assignment(self, lending: Lending) -> Assignment | None:
        """The outbox with its bound handlers, and a roster of the destinations that are rows."""
        routes = routes_of(self.registrations)
        async with lending.database.connection() as conn:
            if not routes and not await destinations.may_serve(conn):
                return None  # a worker of other queues, with rights for those
            if routes:
                await self.registry.register(conn, self._topics.values())
                await store.register(
                    conn,
                    [route.name for route in routes],
                    [route.topic for route in routes],
                    [route.destination for route in routes],
                )
            idle = not routes and not await destinations.serving(conn)
        claims = Claims()
        joint = all(r.plan.tx is None for r in self.registrations)
        queue = OutboxQueue(routes=list(routes), claims=claims, joint=joint)
        calls = sum(r.options.concurrency for r in self.registrations)
        runtime = await lending.runtime(queue, OutboxEnding(), calls=calls)
        return Assignment(
            queue,
            {route.lane: bind(r, runtime) for route, r in routes.items()},
            Relay(lending, runtime, claims),
            idle,
        )

    def jobs(self, lending: Lending) -> Mapping[str, Job]:
        """Partitions made ahead and dropped by retention; a look at lines without a head."""
        del lending
        return {
            "outbox_partitions": store.partitions,
            "outbox_check_keys": store.check_keys,
            "outbox_purge_dedupe": store.purge_dedupe,
            "outbox_purge_relays": store.purge_relays,
            "outbox_removals": store.end_removals,
            "outbox_alerts": store.tend_alerts,
        }

    def register(
        self,
        topic: "Topic[Any]",
        function: Callable[..., Any],
        options: Options,
        *,
        batch: bool,
        name: str = "",
    ) -> None:
        """Take a handler for a topic; raises BadHandler for what cannot be called.

        Several handlers of one topic get every event each, with attempts of their own.
        """
        plan = plan_for(function, self._resources, batch=batch)
        _check_model(topic, plan.model, plan.name)
        new = Registration(topic.name, function, plan, decoder(topic.model), options, name)
        check_names(self.registrations, new)
        self.registrations.append(new)


class Topic(Generic[T]):
    """A named kind of event and the model of its payload. Made by `Outbox.topic`."""

    def __init__(self, outbox: Outbox, name: str, model: type[T], *, version: int) -> None:
        self.name = name
        self.model = model
        self.version = version
        self._outbox = outbox
        kind: object = get_origin(model) or model
        self._kind = kind if isinstance(kind, type) and not is_typeddict(kind) else None
        # An unusable model is an error where it is declared, not at the first event.
        decoder(model)

    async def publish(self, conn: AsyncConn, data: T, **options: Unpack[PublishOptions]) -> UUID:
        """Publish in the caller's open transaction; returns the event's id.

        Raises NotInTransaction when the connection would commit by itself, unless
        `autocommit_ok=True` says that this is meant.
        """
        arguments = _arguments(
            self.name, self._encoded(data), version=self.version, options=options
        )
        user = adapt(conn)
        await require_transaction(user, autocommit_ok=options.get("autocommit_ok", False))
        await self._outbox.registry.check(user, self)
        return await store.publish(user, arguments)

    def publish_sync(self, conn: SyncConn, data: T, **options: Unpack[PublishOptions]) -> UUID:
        """The same on a blocking connection: psycopg, SQLAlchemy or Django."""
        user = adapt_sync(conn)
        require_transaction_sync(user, autocommit_ok=options.get("autocommit_ok", False))
        arguments = _arguments(
            self.name, self._encoded(data), version=self.version, options=options
        )
        self._outbox.registry.check_sync(user, self)
        return store.publish_sync(user, arguments)

    async def publish_many(
        self, conn: AsyncConn, data: Iterable[T], **options: Unpack[PublishOptions]
    ) -> int:
        """Publish many events, up to a thousand per statement, in the order given.

        Returns how many. `data` may be a generator: two statements' events are in memory at a time.
        """
        user = adapt(conn)
        await require_transaction(user, autocommit_ok=options.get("autocommit_ok", False))
        topic, *rest = self._shared(options)
        await self._outbox.registry.check(user, self)
        return await batches.send_all(
            map(self._encoded, data),
            lambda events: store.publish_many(user, [topic, events, *rest]),
        )

    def publish_many_sync(
        self, conn: SyncConn, data: Iterable[T], **options: Unpack[PublishOptions]
    ) -> int:
        """The same on a blocking connection: psycopg, SQLAlchemy or Django."""
        user = adapt_sync(conn)
        require_transaction_sync(user, autocommit_ok=options.get("autocommit_ok", False))
        topic, *rest = self._shared(options)
        self._outbox.registry.check_sync(user, self)
        return batches.send_all_sync(
            map(self._encoded, data),
            lambda events: store.publish_many_sync(user, [topic, events, *rest]),
        )

    def on(
        self,
        *,
        concurrency: int = 8,
        timeout_s: float = 30,
        max_attempts: int = 10,
        name: str = "",
    ) -> Callable[[Callable[Concatenate[Event[T], P], R]], Callable[Concatenate[Event[T], P], R]]:
        """Handle events of this topic one at a time, up to `concurrency` at once per process.

        A topic may have several handlers; each gets every event. The database remembers a handler
        by its `name` (by default the function's), so a new name is a new handler.
        """
        options = _options(concurrency, 1, timeout_s=timeout_s, max_attempts=max_attempts)

        def register(
            function: Callable[Concatenate[Event[T], P], R],
        ) -> Callable[Concatenate[Event[T], P], R]:
            self._outbox.register(self, function, options, batch=False, name=name)
            return function

        return register

    def on_batch(
        self,
        size: int,
        *,
        concurrency: int = 1,
        timeout_s: float = 30,
        max_attempts: int = 10,
        name: str = "",
    ) -> Callable[[Callable[Concatenate[Batch[T], P], R]], Callable[Concatenate[Batch[T], P], R]]:
        """Handle up to `size` events in one call. A batch that raises is run again one by one."""
        options = _options(concurrency, size, timeout_s=timeout_s, max_attempts=max_attempts)

        def register(
            function: Callable[Concatenate[Batch[T], P], R],
        ) -> Callable[Concatenate[Batch[T], P], R]:
            self._outbox.register(self, function, options, batch=True, name=name)
            return function

        return register

    def _shared(self, options: PublishOptions) -> list[str | None]:
        """What many events have in common: topic, headers, tenant, time of delivery, key."""
        if "dedupe_key" in options:
            raise WrongUsage(
                "one dedupe key cannot stand for many events", todo="publish them one by one."
            )
        _, topic, _, *rest = _arguments(self.name, "", version=self.version, options=options)
        return [topic, *rest[:4]]

    def _encoded(self, data: T) -> str:
        if self._kind is not None and not isinstance(data, self._kind):
            raise PayloadRefused(
                f"topic {self.name} carries {self._kind.__qualname__},"
                f" not {type(data).__qualname__}"
            )
        return _encoded(data)


def _arguments(
    topic: str, payload: str, *, version: int, options: PublishOptions
) -> list[str | None]:
    """Id, topic, payload, headers, tenant, time of delivery, ordering and dedupe key, as text."""
    if not options.keys() <= _OPTIONS:
        raise _unknown_option(min(options.keys() - _OPTIONS))
    deliver_at = options.get("deliver_at")
    tenant = options.get("tenant")
    return [
        str(uuid7()),
        topic,
        payload,
        _headers(version, options.get("headers")),
        None if tenant is None else str(tenant),
        None if deliver_at is None else _instant(deliver_at),
        options.get("ordering_key"),
        options.get("dedupe_key"),
    ]


def _unknown_option(name: str) -> WrongUsage:
    """A misspelt key would be dropped silently, and with it the order that it stands for."""
    near = get_close_matches(name, _OPTIONS, n=1)
    return WrongUsage(
        f"an event has no option {name!r}",
        todo=f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(_OPTIONS))}.",
    )


def _instant(at: datetime) -> str:
    if at.tzinfo is None:
        raise WrongUsage(
            "deliver_at has no time zone", todo="use an aware datetime, such as datetime.now(UTC)."
        )
    return at.isoformat()


def _headers(version: int, given: Mapping[str, str] | None) -> str:
    headers: dict[str, str] = {}
    # Without the module imported by the application there can be no trace to capture.
    if "opentelemetry.trace" in sys.modules:
        headers |= Traces().capture()
    if version != 1:
        headers[VERSION_HEADER] = str(version)
    if given:
        headers |= given
    return _encoded(headers) if headers else "{}"


def _encoded(data: object) -> str:
    try:
        return encode(data)
    except BadPayload as error:
        raise PayloadRefused(error.what) from error


def _options(concurrency: int, size: int, *, timeout_s: float, max_attempts: int) -> Options:
    if concurrency < 1 or not 1 <= size <= 1000 or timeout_s <= 0 or max_attempts < 1:
        raise BadHandler(
            "concurrency, timeout_s and max_attempts are above 0, size is 1 to 1000",
            todo="see the arguments of the decorator.",
        )
    return Options(concurrency, size, timeout_s, max_attempts)


def _check_model(topic: Topic[Any], asked: Any, handler: str) -> None:
    """A handler annotated with another topic's model is a mistake that types also show."""
    if asked is Any or asked == topic.model or not isinstance(asked, type):
        return
    kind = get_origin(topic.model) or topic.model
    if isinstance(kind, type) and issubclass(kind, asked):
        return
    raise BadHandler(
        f"handler {handler} takes Event[{asked.__qualname__}], and topic {topic.name} carries"
        f" {getattr(topic.model, '__qualname__', topic.model)}",
        todo="annotate the handler with the topic's model.",
    )
