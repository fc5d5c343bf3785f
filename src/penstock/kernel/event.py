"""What a handler receives: the event with its decoded payload, and the attempt it is in."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID, uuid5

from msgspec import Struct

from penstock.kernel.connections import AsyncConn, SyncConn
from penstock.kernel.errors import LeaseLost, WrongUsage
from penstock.kernel.queue import Item

T = TypeVar("T")


class Ending(Protocol):
    """How a queue ends items inside a transaction of the user's; a lost lease raises LeaseLost."""

    async def finish(self, conn: AsyncConn, items: Sequence[Item]) -> None:
        """Finish the items in the open transaction of an async connection."""
        ...

    def finish_sync(self, conn: SyncConn, items: Sequence[Item]) -> None:
        """Finish the items in the open transaction of a blocking connection."""
        ...


Extend: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Item]]]


@dataclass(slots=True)
class Effect:
    """One outside call of a handler; `key` is the same at every attempt of the same event.

    `done` says that an earlier attempt got its answer: then leave the call out. What the receiver
    calls it may be put into `external_ref`; it is kept with the record.
    """

    name: str
    key: str
    done: bool = False
    external_ref: str | None = None


class Effects(Protocol):
    """How a queue records outside calls: begun before the call, ended after its answer."""

    async def begin(self, item: Item, effect: Effect) -> Effect:
        """Record the start; returns it with the key of the first start, and whether it is done."""
        ...

    async def end(self, item: Item, effect: Effect) -> None:
        """Record that the answer has come."""
        ...


class Event(Struct, Generic[T], frozen=True):
    """An event as its handler sees it. The payload never shows in a repr, so it cannot be logged.

    `id` is constant over all attempts: a receiver that remembers it sees each event once.
    """

    id: UUID
    topic: str
    data: T
    headers: Mapping[str, str]
    occurred_at: datetime
    ordering_key: str | None = None
    tenant: UUID | None = None
    raw: bytes = b""
    _item: Item | None = None
    _ending: Ending | None = None
    _effects: Effects | None = None

    def __repr__(self) -> str:
        return (
            f"Event(id={self.id!r}, topic={self.topic!r}, occurred_at={self.occurred_at!r},"
            f" ordering_key={self.ordering_key!r}, tenant={self.tenant!r})"
        )

    async def finish(self, conn: AsyncConn) -> None:
        """Finish this event in your own open transaction: both commit together or not at all.

        Raises LeaseLost when another worker has taken the event over, which undoes your
        transaction. Whatever the handler answers afterwards, the database then says whether the
        event is finished. Call it where it commits with the effect: inside a savepoint that is
        rolled back alone it is undone, the effect outside stays, and the event comes again.
        """
        item, ending = self._claimed()
        await ending.finish(conn, [item])
        item.finished_by_handler = True

    def finish_sync(self, conn: SyncConn) -> None:
        """The same on a blocking connection, for `def` handlers."""
        item, ending = self._claimed()
        ending.finish_sync(conn, [item])
        item.finished_by_handler = True

    @asynccontextmanager
    async def effect(self, name: str) -> AsyncIterator[Effect]:
        """Mark an outside call. `effect.key` is derived from event and name alone.

        Give the key to the receiver as its idempotency key: however often the event is handled,
        the receiver sees the same one. Where the queue records effects (the inbox), the start is
        committed before the block and the end after it; a block that raises stays begun.
        """
        effect = Effect(name, str(uuid5(self.id, name)))
        if self._effects is None or self._item is None:
            yield effect
            return
        effect = await self._effects.begin(self._item, effect)
        yield effect
        if not effect.done:
            await self._effects.end(self._item, effect)

    def _claimed(self) -> tuple[Item, Ending]:
        if self._item is None or self._ending is None:
            raise WrongUsage(
                "this event was not claimed by a worker, so there is nothing to finish",
                todo="call finish only on the event a handler was given.",
            )
        return self._item, self._ending


Batch: TypeAlias = Sequence[Event[T]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of an item: which attempt it is, and until when the worker surely owns it."""

    number: int
    epoch: int
    expires_at: datetime
    _items: Sequence[Item] = field(default=(), repr=False, compare=False)
    _extend: Extend | None = field(default=None, repr=False, compare=False)

    async def extend(self) -> None:
        """Prolong the lease now; raises LeaseLost when another worker has taken over.

        Leases of running handlers are prolonged without this. Call it before a step that must not
        happen after the lease is lost.
        """
        if self._extend is None:
            return
        if await self._extend(self._items):
            raise LeaseLost("the lease could not be extended: another worker owns the item")
