"""Grouping: in order, bounded by count and weight, one answer each."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.kernel.gathering import Gathering, InOrder


class Counter:
    """Stands for the database: holds calls until told, remembers what each carried."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [item * 10 for item in items]


def gathering(counter: Counter, **bounds: int) -> Gathering[int, int]:
    limits = {"count_max": 100, "weight_max": 1000, **bounds}
    line = InOrder[int, int](weight=lambda item: item, **limits)
    return Gathering(counter, line, calls_max=1)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def carried(counter: Counter, group: Gathering[int, int], items: Sequence[int]) -> list[int]:
    first = group.ask(items[0])
    await settled()
    rest = [group.ask(item) for item in items[1:]]
    await settled()
    counter.open.set()
    return list(await asyncio.gather(first, *rest))


async def test_what_waits_goes_together_in_order_and_each_gets_its_own_answer() -> None:
    counter = Counter()
    answers = await carried(counter, gathering(counter), [3, 1, 2, 5])
    assert answers == [30, 10, 20, 50]
    assert counter.calls == [[3], [1, 2, 5]]


async def test_what_is_asked_in_the_same_turn_goes_together_too() -> None:
    counter = Counter()
    group = gathering(counter)
    asked = [group.ask(item) for item in (3, 1, 2)]
    await settled()
    assert counter.calls == [[3, 1, 2]]
    counter.open.set()
    assert await asyncio.gather(*asked) == [30, 10, 20]


async def test_what_is_asked_last_is_answered_before_it_closes() -> None:
    counter = Counter()
    counter.open.set()
    group = gathering(counter)
    asked = group.ask(4)
    await group.close()
    assert asked.result() == 40


async def test_the_next_call_goes_before_the_answers_of_the_last_are_told() -> None:
    counter = Counter()
    counter.open.set()
    group = gathering(counter)
    in_flight: list[int] = []
    first = group.ask(1)
    await asyncio.sleep(0)
    second = group.ask(2)
    first.add_done_callback(lambda _: in_flight.append(len(counter.calls)))
    assert (await first, await second) == (10, 20)
    assert in_flight == [2]


async def test_a_call_is_bounded_by_count() -> None:
    counter = Counter()
    await carried(counter, gathering(counter, count_max=2), [1, 2, 3, 4, 5])
    assert counter.calls == [[1], [2, 3], [4, 5]]


async def test_a_call_is_bounded_by_weight_and_carries_at_least_one() -> None:
    counter = Counter()
    await carried(counter, gathering(counter, weight_max=10), [1, 6, 4, 7, 99, 2])
    assert counter.calls == [[1], [6, 4], [7], [99], [2]]


async def test_an_error_reaches_everyone_in_the_call_and_nobody_after_it() -> None:
    counter = Counter()
    counter.error = ValueError("gone")
    group = gathering(counter)
    asked = [group.ask(item) for item in (1, 2)]
    await settled()
    counter.open.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError, ValueError]
    assert outcomes[0] is not outcomes[1]
    counter.error = None
    assert await group.ask(4) == 40
    await group.close()
    assert group.idle


async def test_a_caller_that_went_away_is_not_sent() -> None:
    counter = Counter()
    group = gathering(counter)
    first = group.ask(1)
    await settled()
    gone, stays = (group.ask(item) for item in (2, 3))
    await settled()
    gone.cancel()
    await settled()
    counter.open.set()
    assert (await first, await stays) == (10, 30)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert counter.calls == [[1], [3]]


async def test_an_asker_that_fails_takes_no_answer_from_the_others() -> None:
    class Broken:
        def done(self) -> bool:
            return False

        def set_result(self, result: int) -> None:
            raise LookupError(result)

        def set_exception(self, exception: Exception) -> None:
            raise exception

    faults: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: faults.append(told["exception"]))
    counter = Counter()
    counter.open.set()
    group = gathering(counter)
    group.put(1, Broken())
    assert await asyncio.wait_for(group.ask(2), 1) == 20
    assert [str(fault) for fault in faults] == ["10"]


async def test_too_few_answers_leave_nobody_waiting() -> None:
    async def forgetful(items: Sequence[int]) -> list[int]:
        return list(items)[1:]

    line = InOrder[int, int](count_max=10, weight=lambda item: item, weight_max=100)
    asked = Gathering(forgetful, line).ask(1)
    with pytest.raises(ValueError, match="0 answers to 1"):
        await asyncio.wait_for(asked, 1)
