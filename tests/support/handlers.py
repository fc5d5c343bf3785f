"""Handlers bound to a pretended process: no database, every call recorded."""

from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, cast
from uuid import uuid4

from penstock.kernel.codec import decoder
from penstock.kernel.connections import AsyncConn, SyncConn
from penstock.kernel.errors import LeaseLost
from penstock.kernel.events import Events, Observation
from penstock.kernel.handlers import BoundHandler, Hook, Options, Registration, Runtime
from penstock.kernel.injection import Resources, plan_for
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.traces import Traces
from penstock.kernel.tx import Tx


class NoConnection:
    """Stands where a transaction's connection would; must not be used."""


@dataclass
class Stage:
    """A process that lends nothing real, and remembers what was asked of it."""

    lost: set[int] = field(default_factory=set)
    commit_error: Exception | None = None
    steps: list[str] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)
    resources: Resources = field(default_factory=Resources)
    hooks: list[Hook] = field(default_factory=list)

    async def finish(self, conn: AsyncConn, items: Sequence[Item]) -> None:
        self.steps.append(f"finish {len(items)}")
        if any(item.key in self.lost for item in items):
            raise LeaseLost("taken over")

    def finish_sync(self, conn: SyncConn, items: Sequence[Item]) -> None:
        self.steps.append(f"finish {len(items)}")

    async def extend(self, items: Sequence[Item]) -> Sequence[Item]:
        self.steps.append(f"extend {len(items)}")
        for item in items:
            item.lease.deadline = monotonic() + 30
        return [item for item in items if item.key in self.lost]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        self.steps.append("begin")
        try:
            yield Tx(cast(Any, NoConnection()))
        except BaseException:
            self.steps.append("rollback")
            raise
        self.steps.append("commit")
        if self.commit_error is not None:
            raise self.commit_error

    def bind(
        self,
        function: Callable[..., Any],
        *,
        model: Any = dict,
        batch: bool = False,
        **options: Any,
    ) -> BoundHandler:
        """A handler of the general kind."""
        return BoundHandler(*self.parts(function, model=model, batch=batch, **options))

    def parts(
        self,
        function: Callable[..., Any],
        *,
        model: Any = dict,
        batch: bool = False,
        **options: Any,
    ) -> tuple[Registration, Runtime]:
        """What a handler of any kind is made of."""
        events = Events()
        events.subscribe(self.seen.append)
        pool = ThreadPoolExecutor(2)
        plan = plan_for(function, self.resources, batch=batch)
        registration = Registration("t", function, plan, decoder(model), Options(**options))
        return registration, Runtime(
            queue="outbox",
            ending=self,
            extend=self.extend,
            transaction=self.transaction,
            resources=self.resources,
            events=events,
            threads=lambda: pool,
            hooks=self.hooks,
            traces=Traces(),
        )


def make_item(key: int = 1, payload: bytes = b"{}", *, lease_s: float = 30.0) -> Item:
    """A claimed item, as a queue would return it."""
    now = datetime.now(UTC)
    lease = Lease(uuid4(), 1, now, monotonic() + lease_s)
    return Item(key, uuid4(), "t", payload, {}, now, 1, 10, lease)
