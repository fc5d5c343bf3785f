"""A sink as a handler: what is not ours any more is not sent, one bad item harms no other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock, MagicMock
from uuid import uuid4

import pytest
from msgspec.structs import replace

from penstock.kernel.handler import BACK, LOST
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.traces import Traces
from penstock.kernel.verdict import DONE, Reject, Retry, Verdict
from penstock.outbox.claims import Claims, shares
from penstock.outbox.envelope import VERSION_HEADER
from penstock.outbox.sending import SinkHandler
from penstock.outbox.sinks.sink import Delivery, Destination
from penstock.outbox.tally import Tally


@dataclass
class Recorder:
    """A sink that remembers what it was given."""

    answer: Callable[[Delivery], Verdict] = lambda _delivery: DONE
    size: int = 10
    seen: list[Delivery] = field(default_factory=list)
    closed: bool = False

    async def open(self) -> None:
        """Nothing to open."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        """Answer for each."""
        self.seen += deliveries
        await asyncio.sleep(0)
        return [self.answer(delivery) for delivery in deliveries]

    async def close(self) -> None:
        """Remember that."""
        self.closed = True


def _item(key: int = 1, *, left_s: float = 30.0, **values: Any) -> Item:
    lease = Lease(uuid4(), 7, datetime.now(UTC), monotonic() + left_s)
    given: dict[str, Any] = {"headers": {}, "lane": "l", **values}
    headers = given.pop("headers")
    now = datetime.now(UTC)
    return Item(key, uuid4(), "orders.paid", b'{"n":1}', headers, now, 2, 10, lease, **given)


def _handler(sink: Recorder, claims: Claims | None = None, lost: Sequence[Item] = ()) -> Any:
    runtime = MagicMock(lease_s=30.0, attempts_max=1000, queue="outbox", traces=Traces())
    runtime.extend = AsyncMock(return_value=lost)
    tally = Tally(MagicMock(), MagicMock(), claims or Claims())
    destination = Destination("acme", "http", {})
    return SinkHandler(destination, sink, runtime, source="shop", tally=tally), runtime


def _database() -> MagicMock:
    database = MagicMock()
    database.connection.return_value.__aenter__ = AsyncMock()
    database.connection.return_value.__aexit__ = AsyncMock(return_value=None)
    return database


async def test_a_delivery_says_which_attempt_it_is_and_under_which_fence() -> None:
    sink = Recorder()
    handler, _ = _handler(sink)
    item = _item(event_id=uuid4())
    assert await handler.handle([item]) == [DONE]
    (one,) = sink.seen
    assert (one.attempt, one.fence, one.topic) == (2, 7, "orders.paid")
    assert one.envelope.id == item.event_id, "the event's id, not the delivery's"
    assert one.envelope.source == "shop"


async def test_what_is_no_longer_ours_is_not_sent() -> None:
    sink = Recorder()
    kept, taken, known = _item(1), _item(2, left_s=0.5), _item(3, left_s=0.5)
    known.lease.lost = True
    handler, runtime = _handler(sink, lost=[taken])
    assert await handler.handle([kept, taken, known]) == [DONE, LOST, LOST]
    assert [one.envelope.id for one in sink.seen] == [kept.id]
    runtime.extend.assert_awaited_once_with([taken])


async def test_a_header_that_cannot_be_read_rejects_its_own_event_only() -> None:
    sink = Recorder()
    handler, _ = _handler(sink)
    bad, good = _item(1, headers={VERSION_HEADER: "one"}), _item(2)
    answers = await handler.handle([bad, good])
    assert answers == [Reject("PAYLOAD_INVALID", "ValueError"), DONE]


async def test_a_time_that_no_clock_shows_rejects_its_own_event_only() -> None:
    inner = b'{"id":"1","type":"t","source":"s","schema_version":1,"data":1,"occurred_at":"%s"}'
    sink = Recorder()
    handler, _ = _handler(sink)
    bad, good = replace(_item(1), payload=inner % b"0001-01-01T00:00:00+14:00"), _item(2)
    answers = await handler.handle([bad, good])
    assert answers == [Reject("PAYLOAD_INVALID", "OverflowError"), DONE]


async def test_a_sink_that_is_closed_is_given_nothing_more() -> None:
    sink = Recorder()
    handler, _ = _handler(sink)
    await handler.close()
    assert await handler.handle([_item()]) == [BACK]
    assert sink.seen == []


async def test_while_the_breaker_is_open_nothing_is_sent() -> None:
    sink = Recorder()
    handler, _ = _handler(sink, Claims(open={"acme"}))
    assert await handler.handle([_item()]) == [BACK]
    assert sink.seen == []


async def test_a_sink_that_is_replaced_is_closed_when_its_calls_have_ended() -> None:
    gate = asyncio.Event()

    class Slow(Recorder):
        async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
            await gate.wait()
            return [DONE] * len(deliveries)

    sink = Slow()
    handler, _ = _handler(sink)
    call = asyncio.create_task(handler.handle([_item()]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(handler.close())
    await asyncio.sleep(0)
    assert not sink.closed
    gate.set()
    await asyncio.gather(call, closing)
    assert sink.closed


async def test_a_failure_is_told_before_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    async def weigh(_conn: object, *args: object) -> dict[str, object]:
        told.append(args)
        return {}

    monkeypatch.setattr("penstock.outbox.destinations.weigh", weigh)
    handler, _ = _handler(Recorder(lambda _one: Retry(code="HTTP_503")))
    handler._tally._database = _database()
    telling = asyncio.create_task(handler._tally.run())
    await asyncio.wait_for(handler.handle([_item()]), 1)
    assert told == [(["acme"], [0], [1], ["HTTP_503"])]
    telling.cancel()


def test_shares_never_exceed_the_limit_and_starve_nobody_for_ever() -> None:
    room = {str(n): 8 for n in range(20)}
    assert sum(shares(room, 7).values()) == 7
    assert shares({"a": 3}, 10) == {"a": 3}
    served = {name for _ in range(200) for name in shares(room, 3)}
    assert served == set(room)


async def test_a_410_is_told_with_the_version_that_was_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = AsyncMock(return_value=False)
    monkeypatch.setattr("penstock.outbox.destinations.weigh", AsyncMock(return_value={}))
    monkeypatch.setattr("penstock.outbox.destinations.gone", gone)
    tally = Tally(_database(), MagicMock(), Claims())
    runtime = MagicMock(lease_s=30.0, attempts_max=1000, queue="outbox", traces=Traces())
    destination = Destination("acme", "http", {}, version=7)
    sink = Recorder(lambda _one: Retry(code="HTTP_410"))
    handler = SinkHandler(destination, sink, runtime, source="shop", tally=tally)
    telling = asyncio.create_task(tally.run())
    await asyncio.wait_for(handler.handle([_item()]), 1)
    telling.cancel()
    assert gone.await_args is not None
    assert gone.await_args.args[1:] == ("acme", "HTTP_410")
    assert gone.await_args.kwargs == {"version": 7}
