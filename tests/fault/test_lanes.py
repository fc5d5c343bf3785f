"""Lanes and wake-ups by themselves: the races that a slow run meets once in a million."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic
from uuid import uuid4

from tests.support.waiting import until_true

from penstock.kernel.handler import Answer
from penstock.kernel.lanes import Lane
from penstock.kernel.lease import Lease
from penstock.kernel.queue import Item
from penstock.kernel.verdict import DONE
from penstock.kernel.wakeup import QUIET_S, Wakeup


def _item(key: int) -> Item:
    lease = Lease(uuid4(), 1, datetime.now(UTC), monotonic() + 30)
    return Item(key, uuid4(), "t", b"{}", {}, datetime.now(UTC), 1, 10, lease)


class _Handler:
    size = 1
    concurrency = 1
    timeout_s = 30.0
    max_attempts = 10

    def __init__(self, answers_per_call: int = 1) -> None:
        self.answers_per_call = answers_per_call
        self.handled: list[int] = []

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        self.handled += [item.key for item in items]
        return [DONE] * self.answers_per_call


async def test_items_that_come_while_the_last_call_ends_are_started() -> None:
    """The call has returned but its task is not yet counted as gone: nobody else would start."""
    handler = _Handler()
    loop = asyncio.get_running_loop()

    def done(items: Sequence[Item], _: Sequence[Answer], __: float) -> None:
        if items[0].key == 1:
            loop.call_soon(lane.put, [_item(2)])

    lane = Lane(handler, 10, done, lambda *_: None)
    lane.put([_item(1)])
    await until_true(lambda: handler.handled == [1, 2], "the second item ran", within_s=2)


async def test_a_handler_with_the_wrong_number_of_answers_fails_its_items() -> None:
    failed: list[int] = []
    lane = Lane(
        _Handler(answers_per_call=2),
        10,
        lambda *_: None,
        lambda items, _: failed.extend(item.key for item in items),
    )
    lane.put([_item(1), _item(2)])
    await until_true(lambda: failed == [1, 2], "both items are accounted for", within_s=2)


async def test_a_queue_that_looks_ready_and_gives_nothing_is_not_asked_without_pause() -> None:
    """A paused topic, or one that nobody here handles: ready says yes, the claim finds nothing."""
    wakeup = Wakeup(0.05)
    wakeup.worked()
    looks = 0

    async def ready() -> bool:
        nonlocal looks
        looks += 1
        return True

    deadline = monotonic() + 0.3
    while monotonic() < deadline:
        await wakeup.wait(ready)
    assert 1 <= looks <= 31


async def test_a_storm_of_hints_does_not_become_a_storm_of_claims() -> None:
    wakeup = Wakeup(5.0)
    claims = 0

    async def ready() -> bool:
        return False

    async def storm() -> None:
        while True:
            wakeup.ring()
            await asyncio.sleep(0)

    task = asyncio.create_task(storm())
    started = deadline = monotonic()
    deadline += 0.3
    while monotonic() < deadline:
        assert await wakeup.wait(ready) == "doorbell"
        claims += 1
    task.cancel()
    assert claims <= 31
    assert monotonic() - started < 5


async def test_a_doorbell_ends_the_wait_at_once() -> None:
    wakeup = Wakeup(60.0)

    async def ready() -> bool:
        return False

    asyncio.get_running_loop().call_later(0.02, wakeup.ring)
    started = monotonic()
    assert await asyncio.wait_for(wakeup.wait(ready), 5) == "doorbell"
    assert monotonic() - started < 2


async def test_a_wait_says_who_rang_first_and_own_work_cuts_the_pause_short() -> None:
    wakeup = Wakeup(60.0)

    async def ready() -> bool:
        return False

    wakeup.ring("notify")
    assert await wakeup.wait(ready) == "notify"
    wakeup.ring("notify")
    asyncio.get_running_loop().call_soon(wakeup.ring, "busy")
    started = monotonic()
    assert await wakeup.wait(ready) == "notify"
    assert monotonic() - started < QUIET_S["notify"] / 2


async def test_answers_that_cannot_be_taken_down_fail_their_items_and_the_lane_goes_on() -> None:
    handler = _Handler()
    failed: list[int] = []

    def done(items: Sequence[Item], _: Sequence[Answer], __: float) -> None:
        raise AttributeError("a mistyped verdict")

    lane = Lane(handler, 10, done, lambda items, _: failed.extend(item.key for item in items))
    lane.put([_item(1), _item(2)])
    await until_true(lambda: failed == [1, 2], "both items are accounted for", within_s=2)
