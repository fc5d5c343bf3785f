"""The keeper's pace: never so short that it only extends."""

from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from penstock.kernel.database import Database
from penstock.kernel.events import Events
from penstock.kernel.keeper import LEASE_S_MIN, Keeper
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item, Queue


class Granting:
    """A queue that grants every extension a fixed number of seconds."""

    name = "granting"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def extend(self, conn: Any, items: Sequence[Item]) -> Sequence[Item]:
        del conn
        for item in items:
            item.lease.deadline = monotonic() + self.seconds
        return ()


class Dedicated:
    """A database with one connection that is never used."""

    async def dedicated(self) -> Any:
        return SimpleNamespace(is_closed=lambda: False)


def item() -> Item:
    now = datetime.now(UTC)
    return Item(
        key=1,
        id=uuid4(),
        topic="t",
        payload=b"",
        headers={},
        created_at=now,
        attempt=1,
        max_attempts=5,
        lease=Lease(uuid4(), 1, now, monotonic()),
    )


@pytest.mark.parametrize(
    ("granted", "least", "most"),
    [(20.0, 20.0, 21.0), (0.2, LEASE_S_MIN, LEASE_S_MIN), (-3.0, 10.0, 10.0)],
)
async def test_the_pace_follows_the_queue_but_not_below_a_second(
    granted: float, least: float, most: float
) -> None:
    keeper = Keeper(
        cast(Queue, Granting(granted)),
        cast(Database, Dedicated()),
        Events(),
        lease_s=10.0,
        held=lambda: (),
    )
    await keeper.extend([item()])
    assert least <= keeper.lease_s <= most
