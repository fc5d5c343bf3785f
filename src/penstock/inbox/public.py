"""The inbox's part of the application object: handlers by source and pattern, work in a worker."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.inbox import store
from penstock.inbox.forwarding import Forwarding, ignore
from penstock.inbox.model import QUEUE, Route
from penstock.inbox.queue import InboxEffects, InboxEnding, InboxQueue, Line
from penstock.inbox.roster import RouteRoster, Rows
from penstock.kernel.codec import Decode, decoder
from penstock.kernel.errors import BadHandler, BadPayload
from penstock.kernel.handler import Handler
from penstock.kernel.handlers import BoundHandler, Options, Registration
from penstock.kernel.injection import Resources, plan_for
from penstock.kernel.lending import Lending
from penstock.kernel.scheduler import Job
from penstock.kernel.settings import Settings
from penstock.kernel.worker import Assignment

H = TypeVar("H", bound=Callable[..., object])
Check = Callable[[Any], object]

ATTEMPTS_BY_POLICY = 1000  # the queue's own max_attempts is what counts
PATTERN_LENGTH_MAX = 200
_SOURCE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Inbox:
    """Webhooks that were verified and stored; each event goes to one handler.

    Of several patterns that fit an event, the most particular one takes it: one without a star,
    then the longest.
    """

    queue_name = QUEUE

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._forwarding = Forwarding()
        self.registrations: dict[Line, Registration] = {}

    def on(
        self,
        source: str,
        pattern: str = "*",
        *,
        concurrency: int = 8,
        timeout_s: float = 30,
        check: Check | None = None,
    ) -> Callable[[H], H]:
        """Handle events of a source one at a time; `payment_intent.*` fits by its star.

        The payload's model is the handler's annotation, decoded before the call; what does not fit
        it, and what `check` raises a ValueError for, is dead with the code PAYLOAD_INVALID.
        """
        options = _options(concurrency, 1, timeout_s=timeout_s)

        def register(function: H) -> H:
            self._register(Line(source, pattern), function, options, check=check, batch=False)
            return function

        return register

    def on_batch(
        self,
        source: str,
        pattern: str = "*",
        *,
        size: int,
        concurrency: int = 1,
        timeout_s: float = 30,
        check: Check | None = None,
    ) -> Callable[[H], H]:
        """Handle up to `size` events in one call. A batch that raises is run again one by one."""
        options = _options(concurrency, size, timeout_s=timeout_s)

        def register(function: H) -> H:
            self._register(Line(source, pattern), function, options, check=check, batch=True)
            return function

        return register

    def _register(
        self,
        line: Line,
        function: Callable[..., Any],
        options: Options,
        *,
        check: Check | None,
        batch: bool,
    ) -> None:
        if not _SOURCE.fullmatch(line.source) or not 1 <= len(line.pattern) <= PATTERN_LENGTH_MAX:
            raise BadHandler(
                f"{line.name} is no source and pattern",
                todo="a source has small letters, digits, - and _; a pattern 1 to 200 characters.",
            )
        if line in self.registrations:
            raise BadHandler(
                f"{line.name} has a handler already: {self.registrations[line].plan.name}",
                happened="an event goes to one handler; two would share its attempts.",
                todo="call both from one handler, or publish to an outbox topic.",
            )
        self.registrations[line] = self._registration(
            line, function, options, check=check, batch=batch
        )

    def _registration(
        self,
        line: Line,
        function: Callable[..., Any],
        options: Options,
        *,
        check: Check | None = None,
        batch: bool = False,
    ) -> Registration:
        plan = plan_for(function, self._resources, batch=batch)
        decode = _checked(decoder(plan.model), check)
        return Registration(line.name, function, plan, decode, options)

    def kinds(self) -> Sequence[type]:
        """The resources that the handlers ask for."""
        asked = (r.plan.resources.values() for r in self.registrations.values())
        return list(dict.fromkeys(kind for kinds in asked for kind in kinds))

    async def assignment(self, lending: Lending) -> Assignment | None:
        """The inbox with its bound handlers, and a roster of the routes that are rows."""
        async with lending.database.connection() as conn:
            routed = await store.may_route(conn)
        if not routed and not self.registrations:
            return None  # a worker of other queues, with rights for those
        queue = InboxQueue(list(self.registrations))
        calls = None if routed else sum(r.options.concurrency for r in self.registrations.values())
        effects = InboxEffects(lending.database)
        runtime = await lending.runtime(queue, InboxEnding(), calls=calls, effects=effects)
        own = {line.name: BoundHandler(r, runtime) for line, r in self.registrations.items()}
        if not routed:
            return Assignment(queue, own)

        def bound(line: Line, route: Route | None) -> Handler:
            return BoundHandler(self._of_route(line, route, lending.settings), runtime)

        async def read() -> Rows:
            async with lending.database.connection() as conn:
                return Rows.of(await store.routes(conn), await store.sources(conn))

        roster = RouteRoster(
            queue, list(self.registrations), read=read, bind=bound, events=lending.events
        )
        roster.take(await read())
        handlers = {**roster.handlers, **own}
        return Assignment(queue, handlers, roster, idle=not handlers)

    def _of_route(self, line: Line, route: Route | None, settings: Settings) -> Registration:
        """What a route does with its events; without one they are ignored."""
        if route is None:
            options = _options(1, 500, timeout_s=30)
            return self._registration(line, ignore, options, batch=True)
        forward = self._forwarding.handler(route, settings)
        return self._registration(line, forward, _options(8, 1, timeout_s=30))

    def jobs(self, lending: Lending) -> Mapping[str, Job]:
        """Archive, memory and counters; partitions made ahead and dropped by retention."""
        del lending
        return {"inbox_keep": store.keep, "inbox_partitions": store.partitions}

    async def close(self) -> None:
        """Close outgoing connections; the application calls it."""
        await self._forwarding.close()


def _checked(decode: Decode, check: Check | None) -> Decode:
    if check is None:
        return decode
    valid = check

    def run(raw: bytes) -> Any:
        data = decode(raw)
        try:
            valid(data)
        except ValueError as error:
            # Its text may quote the payload, so only its kind is kept.
            raise BadPayload(f"the check refused it: {type(error).__name__}") from error
        return data

    return run


def _options(concurrency: int, size: int, *, timeout_s: float) -> Options:
    if concurrency < 1 or not 1 <= size <= 1000 or timeout_s <= 0:
        raise BadHandler(
            "concurrency and timeout_s are above 0, size is 1 to 1000",
            todo="see the arguments of the decorator.",
        )
    return Options(concurrency, size, timeout_s, ATTEMPTS_BY_POLICY)
