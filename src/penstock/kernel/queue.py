"""What every queue offers the pump: items, outcomes and the verbs, each one SQL statement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from msgspec import Struct

from penstock.kernel.events import ItemDied
from penstock.kernel.lease import Lease
from penstock.kernel.verdict import Verdict


class Connection(Protocol):
    """What a store needs of a connection: asyncpg's own, or an adapter over the user's."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """Run one statement with `$n` parameters and return its rows."""
        ...


class Item(Struct):
    """A claimed item. `key` finds its row, `id` is its constant public identity.

    `kind` is what the handler is told, where a topic here stands for several kinds; `raw` is what
    was received, where that is not the payload.
    A delivery of an event has an `event_id` besides its own, and the `lane` of its route where the
    topic alone does not name the handler.
    """

    key: int
    id: UUID
    topic: str
    payload: bytes
    headers: Mapping[str, str]
    created_at: datetime
    attempt: int
    max_attempts: int
    lease: Lease
    ordering_key: str | None = None
    tenant: UUID | None = None
    finished_by_handler: bool = False
    kind: str | None = None
    raw: bytes | None = None
    event_id: UUID | None = None
    lane: str = ""


class Outcome(Struct, frozen=True):
    """What came of one attempt, ready to be written; `delay_s` is set for a retry."""

    item: Item
    verdict: Verdict
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tending:
    """What one round of housekeeping brought back to ready, and deaths that nobody has told of."""

    reaped: int = 0
    due: int = 0
    swept: int = 0
    deaths: Sequence[ItemDied] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A queue's row in `penstock.queue_config`: the numbers a pump runs by.

    `successive`: the end of one item lets the next be claimed, so that no time may pass in between;
    `flush_age_s` is how long an outcome waits for others to be written with it.
    """

    lease_s: float
    max_attempts: int
    backoff_base_s: float
    backoff_cap_s: float
    poll_ms: int
    notify: bool
    successive: bool = False
    flush_age_s: float = 0.005


class Queue(Protocol):
    """A named source of items. Every verb is one round trip and safe to repeat."""

    name: str

    async def policy(self, conn: Connection) -> Policy:
        """The numbers this queue runs by."""
        ...

    async def claim(
        self, conn: Connection, *, limit: int, owner: UUID, skip: Sequence[str] = ()
    ) -> Sequence[Item]:
        """Lease up to `limit` ready items under a fresh token; topics in `skip` are left alone."""
        ...

    async def finish(self, conn: Connection, outcomes: Sequence[Outcome]) -> Sequence[Item]:
        """Write outcomes where the token still matches; return the items that were refused."""
        ...

    async def extend(self, conn: Connection, items: Sequence[Item]) -> Sequence[Item]:
        """Prolong the leases still held, with their deadlines; return the items that are lost."""
        ...

    async def release(self, conn: Connection, items: Sequence[Item]) -> int:
        """Give items back that have not started; the attempt does not count."""
        ...

    async def ready(self, conn: Connection) -> bool:
        """Whether a claim now might find something; cheap enough to ask every 10 ms."""
        ...

    async def tend(self, conn: Connection) -> Tending:
        """Reap, bring back due rows, sweep, keep the watermark; a no-op when not yet due."""
        ...


def ends_at_limit(queue: Queue, item: Item) -> bool:
    """Whether the queue's own SQL lets an item die at this attempt, were it to be retried."""
    return getattr(queue, "dies_at_limit", False) and item.attempt >= item.max_attempts


@runtime_checkable
class Successive(Protocol):
    """A queue in which the end of one item lets the next go, and both fit into one commit."""

    async def finish_and_claim(
        self, conn: Connection, outcomes: Sequence[Outcome], *, owner: UUID, skip: Sequence[str]
    ) -> tuple[Sequence[Item], Sequence[Item]]:
        """Finish, and lease what that lets go; return the refused items and the leased ones.

        At most one for each outcome. Whatever else there is to claim is left to `claim`; so is
        everything while others would have to wait for it.
        """
        ...


def channel_of(queue: Queue) -> str:
    """The NOTIFY channel of a queue: `penstock_<name>`, unless a seed names another."""
    channel: str = getattr(queue, "channel", f"penstock_{queue.name}")
    return channel
