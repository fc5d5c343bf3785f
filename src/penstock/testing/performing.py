"""One handler by itself: no database, no worker."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_origin, get_type_hints

from penstock.kernel.answers import verdict_of
from penstock.kernel.codec import encode
from penstock.kernel.connections import AsyncConn, SyncConn
from penstock.kernel.event import Attempt, Event
from penstock.kernel.ids import uuid7
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.verdict import Verdict

TOPIC = "test"
_LEASE_S = 30.0


class _Pretended:
    """Takes `event.finish` for granted: there is no row to finish."""

    async def finish(self, conn: AsyncConn, items: Sequence[Item]) -> None:
        """Do nothing."""

    def finish_sync(self, conn: SyncConn, items: Sequence[Item]) -> None:
        """Do nothing."""


def make_event(data: object, *, topic: str = TOPIC) -> Event[Any]:
    """An event around a payload, as if it had just been claimed for the first time."""
    now = datetime.now(UTC)
    raw = encode(data).encode()
    lease = Lease(uuid7(), 1, now + timedelta(seconds=_LEASE_S), float("inf"))
    item = Item(1, uuid7(), topic, raw, {}, now, 1, 10, lease)
    return Event(item.id, topic, data, {}, now, None, None, raw, item, _Pretended())


async def perform(handler: Callable[..., object], data: object, **injected: object) -> Verdict:
    """Call a handler with a payload and return its verdict; other parameters are given by name.

    A batch handler takes a list of payloads. An exception reaches the test as it is; in a worker
    it would be a Retry.
    """
    first, arguments = prepare(handler, data, injected)
    return await invoke(handler, first, arguments)


def prepare(
    handler: Callable[..., object], data: object, injected: dict[str, object]
) -> tuple[object, dict[str, object]]:
    """The first argument of a handler and the others."""
    hints = get_type_hints(handler)
    hints.pop("return", None)
    names = list(hints)
    batch = bool(names) and get_origin(hints[names[0]]) in (Sequence, list, tuple)
    if batch:
        assert isinstance(data, list | tuple), "a batch handler takes a list of payloads"
        first: object = [make_event(each) for each in data]
    else:
        first = make_event(data)
    arguments = dict(injected)
    for name, kind in hints.items():
        if kind is Attempt and name not in arguments:
            arguments[name] = Attempt(1, 1, datetime.now(UTC) + timedelta(seconds=_LEASE_S))
    return first, arguments


async def invoke(
    handler: Callable[..., Any], first: object, arguments: dict[str, object]
) -> Verdict:
    """Call it, await it if there is something to await, and read its answer."""
    result = handler(first, **arguments)
    return verdict_of(await result if hasattr(result, "__await__") else result)
