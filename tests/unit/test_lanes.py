"""A lane's window follows the handler's speed, not that of the database."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.support.waiting import until_true

from penstock.kernel.handler import Answer
from penstock.kernel.ids import uuid7
from penstock.kernel.lanes import Lane
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.verdict import DONE

WINDOW_MAX = 400


class Sleeper:
    """A handler that takes its time."""

    size = 1
    concurrency = 4
    timeout_s = 5.0
    max_attempts = 3

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        await asyncio.sleep(self._seconds)
        return [DONE for _ in items]


def lane_of(seconds: float) -> Lane:
    return Lane(
        Sleeper(seconds), WINDOW_MAX, done=lambda *_: None, failed=lambda _, error: _raise(error)
    )


def _raise(error: BaseException) -> None:
    raise error


def items(count: int) -> list[Item]:
    now = datetime.now(UTC)
    lease = Lease(uuid7(), 1, now, 0.0)
    return [Item(n, uuid7(), "t", b"{}", {}, now, 1, 3, lease) for n in range(count)]


async def claims(lane: Lane, *, latency_s: float, rounds: int = 6) -> None:
    """What a pump does with a database that takes `latency_s` for every claim."""
    for _ in range(rounds):
        lane.put(items(lane.window - len(lane.waiting)))
        await until_true(lane.room, "there is room")
        lane.adapt()
        await asyncio.sleep(latency_s)


async def test_a_slow_database_is_asked_for_more_and_not_for_less() -> None:
    lane = lane_of(0.0)
    await claims(lane, latency_s=0.15)
    assert lane.window == WINDOW_MAX


async def test_a_slow_handler_does_not_hoard() -> None:
    lane = lane_of(0.1)
    await claims(lane, latency_s=0.001)
    assert lane.window <= 2 * Sleeper.concurrency
    for task in list(lane.tasks):
        task.cancel()
    await asyncio.gather(*lane.tasks, return_exceptions=True)


def test_the_window_is_what_is_ended_in_its_time() -> None:
    for window_s, window in ((0.1, 100), (0.25, 250)):
        lane = lane_of(0.0)
        lane.window_s = window_s
        lane.ended, lane.busy_s = 1000, 1.0
        lane.adapt()
        assert lane.window == window
