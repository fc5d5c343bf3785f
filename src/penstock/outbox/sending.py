"""A sink as the pump sees it: claimed items in, verdicts out, and a word to the breaker."""

import asyncio
from collections.abc import Sequence

from penstock.kernel.eager import within
from penstock.kernel.event import Event
from penstock.kernel.failpoints import failpoint
from penstock.kernel.handler import BACK, COMMITTED, LOST, Answer, Handler
from penstock.kernel.handlers import Runtime
from penstock.kernel.queue import Item
from penstock.kernel.verdict import DONE, Done, Reject, Retry, Unknown, Verdict
from penstock.outbox.envelope import Envelope
from penstock.outbox.sinks.sink import Delivery, Destination, Sink
from penstock.outbox.tally import Tally

ATTEMPTS_BY_POLICY = 1000  # the queue's own max_attempts is what counts
TIMEOUT_S = 60.0  # for a sink that does not say how long it may take
MARGIN_S = 5.0  # a sink ends by its own limit; this one is for a sink that hangs
CLOSE_WITHIN_S = 60.0


class SinkHandler:
    """Delivers the items of one destination. What a sink raises is its fault, not the item's."""

    def __init__(
        self, destination: Destination, sink: Sink, runtime: Runtime, *, source: str, tally: Tally
    ) -> None:
        self.size = sink.size
        self.concurrency = destination.concurrency
        self.timeout_s = float(getattr(sink, "timeout_s", TIMEOUT_S)) + MARGIN_S
        self.max_attempts = min(ATTEMPTS_BY_POLICY, runtime.attempts_max)
        self._name = destination.name
        self._version = destination.version
        self._sink = sink
        self._runtime = runtime
        self._source = source
        self._tally = tally
        self._margin_s = min(self.timeout_s, runtime.lease_s / 3)
        self._running = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Deliver each item and answer in the order of the items."""
        if self._closed or self._tally.is_open(self._name):
            # Claimed before the breaker opened, or before the destination changed: a sink that is
            # closed would connect once more, and nobody would close that.
            return [BACK] * len(items)
        self._running += 1
        self._idle.clear()
        try:
            return await self._handle(items)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def close(self) -> None:
        """Let running calls end, for a while, then close the sink; no further one begins."""
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._idle.wait()
        except TimeoutError:
            pass  # a call that hangs must not keep a connection open for ever
        await self._sink.close()

    async def _handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        answers: dict[int, Answer] = {}
        deliveries: dict[int, Delivery] = {}
        for item in items:
            try:
                deliveries[item.key] = self._delivery(item)
            except (ValueError, OverflowError) as error:  # plain SQL may have stored anything
                answers[item.key] = Reject("PAYLOAD_INVALID", type(error).__name__)
        for key in await self._lost([item for item in items if item.key in deliveries]):
            del deliveries[key]
            answers[key] = LOST
        if deliveries:
            verdicts = await self._deliver(items[0], list(deliveries.values()))
            answers |= dict(zip(deliveries, verdicts, strict=True))
        return [answers[item.key] for item in items]

    def _delivery(self, item: Item) -> Delivery:
        event = Event(
            item.event_id or item.id,
            item.topic,
            None,
            item.headers,
            item.created_at,
            item.ordering_key,
            item.tenant,
            item.payload,
        )
        envelope = Envelope.of(event, source=self._source)
        return Delivery(item.topic, envelope, item.attempt, item.lease.epoch, item.headers)

    async def _lost(self, items: Sequence[Item]) -> set[int]:
        """Items that are no longer ours; a lease too short for a call is prolonged first."""
        short = [item for item in items if not item.lease.covers(self._margin_s)]
        lost = {item.key for item in short if item.lease.lost}
        kept = [item for item in short if not item.lease.lost]
        if kept:
            lost |= {item.key for item in await self._runtime.extend(kept)}
        return lost

    async def _deliver(self, first: Item, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        failpoint("before_effect")
        with self._runtime.traces.handling(self._runtime.queue, first) as span:
            try:
                verdicts = await within(self._call(deliveries), self.timeout_s)
            except TimeoutError:
                verdicts = [Retry(code="TIMEOUT", reason="the sink hangs")] * len(deliveries)
            except Exception:
                raised: Verdict = Retry(code="SINK_RAISED")
                await self._note([raised], deliveries[:1])
                raise
            span.end(verdicts[0])
        failpoint("after_effect")
        await self._note(verdicts, deliveries)
        return verdicts

    async def _note(self, verdicts: Sequence[Verdict], deliveries: Sequence[Delivery]) -> None:
        events = [each.envelope.id for each in deliveries]
        await self._tally.note(self._name, verdicts, events, version=self._version)

    async def _call(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        return await self._sink.deliver(deliveries)


class WeighedHandler:
    """A handler whose answers move the breaker of a destination, as those of a sink do."""

    def __init__(self, destination: Destination, handler: Handler, tally: Tally) -> None:
        self.size = handler.size
        self.concurrency = handler.concurrency
        self.timeout_s = handler.timeout_s
        self.max_attempts = handler.max_attempts
        self._name = destination.name
        self._handler = handler
        self._tally = tally

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Hand the items on, and say how it went."""
        if self._tally.is_open(self._name):
            return [BACK] * len(items)
        answers = await self._handler.handle(items)
        told = [
            (DONE if answer == COMMITTED else answer, item.event_id or item.id)
            for item, answer in zip(items, answers, strict=True)
        ]
        verdicts = [
            (verdict, event)
            for verdict, event in told
            if isinstance(verdict, Done | Reject | Retry | Unknown)
        ]
        await self._tally.note(
            self._name, [verdict for verdict, _ in verdicts], [event for _, event in verdicts]
        )
        return answers
