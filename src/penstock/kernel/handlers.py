"""Handlers of the user: registered once, bound to a running process, called with claimed items.

One rule for every kind: a handler answers for its items and never raises for what they do. What the
answer means for the transaction is decided here; the queue's SQL decides what it means for the row.
"""

import asyncio
import contextvars
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from penstock.kernel.answers import TimedOut, code_of, reason_of, verdict_of
from penstock.kernel.codec import Decode
from penstock.kernel.eager import within
from penstock.kernel.errors import BadPayload, DatabaseUnreachable, LeaseLost
from penstock.kernel.event import Attempt, Effects, Ending, Event, Extend
from penstock.kernel.events import Events, HandlerRaised
from penstock.kernel.failpoints import failpoint
from penstock.kernel.handler import CHECK, COMMITTED, LOST, Answer
from penstock.kernel.injection import Plan, Resources
from penstock.kernel.queue import Item
from penstock.kernel.traces import Traces
from penstock.kernel.tx import Tx
from penstock.kernel.verdict import DONE, Done, Reject, Retry, Unknown, Verdict

_log = logging.getLogger("penstock.handlers")

Hook: TypeAlias = Callable[[Event[Any], Attempt], AsyncIterator[None]]
OpenTransaction: TypeAlias = Callable[[], AbstractAsyncContextManager[Tx]]

TELL_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """How a handler is run: calls at a time, items per call, seconds per call, attempts in all."""

    concurrency: int = 8
    size: int = 1
    timeout_s: float = 30.0
    max_attempts: int = 10


@dataclass(frozen=True, slots=True)
class Registration:
    """A handler as it was registered: nothing of a running process is in it."""

    topic: str
    function: Callable[..., Any]
    plan: Plan
    decode: Decode
    options: Options
    name: str = ""


@dataclass(slots=True)
class Runtime:
    """What a running process lends to the handlers of one queue."""

    queue: str
    ending: Ending
    extend: Extend
    transaction: OpenTransaction
    resources: Resources
    events: Events
    threads: Callable[[], Executor]
    hooks: Sequence[Hook] = ()
    traces: Traces = field(default_factory=Traces)
    lease_s: float = 30.0
    concurrency_max: int = 1000
    attempts_max: int = 1000
    slots: asyncio.Semaphore | None = None
    effects: Effects | None = None


class _Undone(Exception):
    """Carries a verdict out of a transaction that must not commit."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict


class UserTimeout(Exception):
    """Carries a TimeoutError of the user's code past the limit of the handler."""

    def __init__(self, error: TimeoutError) -> None:
        super().__init__()
        self.error = error


class BoundHandler:
    """A registered handler inside a running process; what the pump calls."""

    def __init__(self, registration: Registration, runtime: Runtime) -> None:
        options = registration.options
        self.size = options.size
        self.concurrency = max(1, min(options.concurrency, runtime.concurrency_max))
        self.timeout_s = options.timeout_s
        self.max_attempts = min(options.max_attempts, runtime.attempts_max)
        self._function = registration.function
        self._plan = registration.plan
        self._decode = registration.decode
        self._runtime = runtime
        # The keeper renews at two thirds of a lease; asking for more here would extend every time.
        self._margin_s = min(options.timeout_s, runtime.lease_s / 3)
        self._hooks = [asynccontextmanager(hook) for hook in runtime.hooks]
        self._told_at: dict[str, float] = {}

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Run the effect for each item and answer in the order of the items."""
        if self._runtime.slots is None:
            return await self._handle(items)
        async with self._runtime.slots:  # leases are looked at afterwards: the wait may be long
            return await self._handle(items)

    async def _handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        answers: dict[int, Answer] = {}
        events = [event for item in items if (event := self._event(item, answers)) is not None]
        if events:
            await self._run(events, answers)
        return [answers[item.key] for item in items]

    def _event(self, item: Item, answers: dict[int, Answer]) -> Event[Any] | None:
        try:
            data = self._decode(item.payload)
        except BadPayload as error:
            answers[item.key] = Reject("PAYLOAD_INVALID", error.what)
            return None
        return Event(
            item.event_id or item.id,
            item.topic if item.kind is None else item.kind,
            data,
            item.headers,
            item.created_at,
            item.ordering_key,
            item.tenant,
            item.payload if item.raw is None else item.raw,
            item,
            self._runtime.ending,
            self._runtime.effects,
        )

    async def _run(self, events: list[Event[Any]], answers: dict[int, Answer]) -> None:
        """Answer for these events; a batch that fails is run again one event at a time."""
        events = await self._still_owned(events, answers)
        if not events:
            return
        items = [_item(event) for event in events]
        for item in items:
            item.finished_by_handler = False  # of an earlier try in this lease, which was undone
        try:
            found = await self._attempt(events, items)
        except Exception as error:  # the boundary to the user's code: whatever it raises is a Retry
            if len(events) == 1:
                answers[items[0].key] = self._failure(items[0], error)
                return
            self._report(items[0], error)
            for event in events:
                await self._run([event], answers)
            return
        for item, answer in zip(items, found, strict=True):
            answers[item.key] = CHECK if item.finished_by_handler else answer

    async def _still_owned(
        self, events: list[Event[Any]], answers: dict[int, Answer]
    ) -> list[Event[Any]]:
        """The events whose lease covers an effect, prolonged where needed; others are LOST."""
        short = [i for i in map(_item, events) if not i.lease.covers(self._margin_s)]
        if not short:
            return events
        lost = {item.key for item in short if item.lease.lost}
        kept = [item for item in short if not item.lease.lost]
        if kept:
            lost |= {item.key for item in await self._runtime.extend(kept)}
        for key in lost:
            answers[key] = LOST
        return [event for event in events if _item(event).key not in lost]

    async def _attempt(self, events: list[Event[Any]], items: list[Item]) -> Sequence[Answer]:
        if not self._runtime.traces.active:
            return (await self._judged(events, items))[1]
        with self._runtime.traces.handling(self._runtime.queue, items[0]) as span:
            verdict, answers = await self._judged(events, items)
            span.end(verdict)
        return answers

    async def _judged(
        self, events: list[Event[Any]], items: list[Item]
    ) -> tuple[Verdict, Sequence[Answer]]:
        if self._plan.tx is not None:
            return await self._in_transaction(events, items)
        verdicts = _spread(await self._call(events, None), len(events))
        return verdicts[0], verdicts

    async def _in_transaction(
        self, events: list[Event[Any]], items: list[Item]
    ) -> tuple[Verdict, Sequence[Answer]]:
        """Effect and finish in one commit; if its answer is lost, the database tells."""
        committing = False
        try:
            async with self._runtime.transaction() as tx:
                verdict = verdict_of(await self._call(events, tx))
                if not isinstance(verdict, Done):
                    raise _Undone(verdict)
                open_items = [item for item in items if not item.finished_by_handler]
                if open_items:
                    await self._runtime.ending.finish(tx, open_items)
                failpoint("mid_finish")
                committing = True
        except _Undone as undone:
            return undone.verdict, [_after_rollback(undone.verdict)] * len(items)
        except DatabaseUnreachable:
            if not committing:
                raise
            for item in items:
                item.finished_by_handler = True
        return DONE, [COMMITTED] * len(items)

    async def _call(self, events: list[Event[Any]], tx: Tx | None) -> object:
        """Call the user's function within its time; hooks are around it."""
        plan = self._plan
        arguments: dict[str, object] = {
            name: self._runtime.resources.get(kind) for name, kind in plan.resources.items()
        }
        if plan.tx is not None:
            arguments[plan.tx] = tx
        if plan.attempt is not None:
            arguments[plan.attempt] = self._attempt_of(events)
        first: object = events if plan.batch else events[0]
        try:
            return await within(self._effect(events, first, arguments), self.timeout_s)
        except UserTimeout as wrapped:
            raise wrapped.error from None
        except TimeoutError:
            raise TimedOut from None

    async def _effect(
        self, events: list[Event[Any]], first: object, arguments: dict[str, object]
    ) -> object:
        failpoint("before_effect")
        try:
            if self._hooks:
                result = await self._hooked(events, first, arguments)
            else:
                result = await self._invoke(first, arguments)
        except TimeoutError as error:
            raise UserTimeout(error) from None  # its own, not the limit's
        failpoint("after_effect")
        return result

    async def _hooked(
        self, events: list[Event[Any]], first: object, arguments: dict[str, object]
    ) -> object:
        async with AsyncExitStack() as stack:
            for event in events:
                attempt = self._attempt_of([event])
                for hook in self._hooks:
                    await stack.enter_async_context(hook(event, attempt))
            return await self._invoke(first, arguments)

    async def _invoke(self, first: object, arguments: dict[str, object]) -> object:
        if self._plan.is_async:
            return await self._function(first, **arguments)
        context = contextvars.copy_context()
        call = partial(context.run, self._function, first, **arguments)
        return await asyncio.get_running_loop().run_in_executor(self._runtime.threads(), call)

    def _attempt_of(self, events: list[Event[Any]]) -> Attempt:
        items = [_item(event) for event in events]
        soonest = min(items, key=lambda item: item.lease.deadline)
        return Attempt(
            soonest.attempt,
            soonest.lease.epoch,
            soonest.lease.expires_at,
            items,
            self._runtime.extend,
        )

    def _failure(self, item: Item, error: Exception) -> Answer:
        if isinstance(error, LeaseLost):
            return LOST
        self._report(item, error)
        # The exception may have come before or after the user's own commit: the database knows.
        if item.finished_by_handler:
            return CHECK
        return Retry(reason=reason_of(error), code=code_of(error))

    def _report(self, item: Item, error: Exception) -> None:
        name = type(error).__name__.strip("_")
        self._runtime.events.emit(
            HandlerRaised(self._runtime.queue, item.topic, item.id, item.attempt, name)
        )
        now = monotonic()
        if now - self._told_at.get(name, float("-inf")) < TELL_EVERY_S:
            return  # a thousand failures of one kind have one place in the source
        self._told_at[name] = now
        # The frames show where; the exception's text stays out, because it may quote a payload.
        frames = "".join(traceback.format_tb(error.__traceback__))
        _log.warning("handler_traceback %s raised %s\n%s", self._plan.name, name, frames)


def _item(event: Event[Any]) -> Item:
    item = event._item
    assert item is not None, "events of a bound handler carry their item"
    return item


def _spread(result: object, count: int) -> list[Verdict]:
    """One verdict for all events, or a list with one for each."""
    if isinstance(result, list | tuple) and len(result) == count:
        return [verdict_of(part) for part in result]
    return [verdict_of(result)] * count


def _after_rollback(verdict: Verdict) -> Verdict:
    """An answer that is no verdict has left no effect in a transaction, so nobody need look."""
    if isinstance(verdict, Unknown) and verdict.reason.endswith("which is no verdict"):
        return Reject("BAD_ANSWER", verdict.reason)
    return verdict
