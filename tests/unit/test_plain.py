"""Handlers that are called for one event after the other, until one has to wait."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.handlers import Stage, make_item
from tests.support.waiting import until_true

from penstock import Event, Reject, Retry
from penstock.kernel.handler import TURNS, Answer
from penstock.kernel.lanes import Lane
from penstock.kernel.plain import PlainHandler
from penstock.kernel.queue import Item
from penstock.kernel.verdict import DONE


@pytest.fixture
def stage() -> Stage:
    return Stage()


def _five() -> deque[Item]:
    return deque(make_item(n, b'{"number": %d}' % n) for n in range(5))


async def test_it_runs_through_until_all_are_answered(stage: Stage) -> None:
    async def handler(event: Event[dict[str, int]]) -> None:
        if event.data["number"] == 1:
            raise ValueError

    items, answers, late = PlainHandler(*stage.parts(handler)).dash(_five())
    assert [item.key for item in items] == [0, 1, 2, 3, 4]
    assert [type(answer) for answer in answers] == [type(DONE), Retry, *[type(DONE)] * 3]
    assert late is None


async def test_it_stops_where_one_has_to_wait_and_leaves_the_rest(stage: Stage) -> None:
    async def handler(event: Event[dict[str, int]]) -> None:
        if event.data["number"] == 2:
            await asyncio.sleep(0)

    waiting = _five()
    items, answers, late = PlainHandler(*stage.parts(handler)).dash(waiting)
    assert [item.key for item in items] == [0, 1, 2]
    assert answers == [DONE, DONE]
    assert [item.key for item in waiting] == [3, 4]
    assert late is not None
    assert await late == [DONE]


async def test_it_gives_way_after_some(stage: Stage) -> None:
    async def handler(event: Event[dict[str, Any]]) -> None:
        pass

    waiting = deque(make_item(n) for n in range(TURNS + 1))
    items, _, late = PlainHandler(*stage.parts(handler)).dash(waiting)
    assert (len(items), len(waiting), late) == (TURNS, 1, None)


@pytest.mark.parametrize("error", [RecursionError, StopIteration])
async def test_whatever_decoding_raises_costs_no_other_its_answer(
    stage: Stage, error: type[Exception]
) -> None:
    async def handler(event: Event[dict[str, int]]) -> None:
        pass

    plain = PlainHandler(*stage.parts(handler))
    decode = plain._decode

    def breaking(payload: bytes) -> Any:
        if b"2" in payload:
            raise error
        return decode(payload)

    plain._decode = breaking
    items, answers, late = plain.dash(_five())
    assert len(items) == len(answers) == 5
    assert [isinstance(answer, Retry) for answer in answers] == [False, False, True, False, False]
    assert late is None


async def test_a_bad_payload_takes_the_long_way_and_is_rejected(stage: Stage) -> None:
    async def handler(event: Event[dict[str, int]]) -> None:
        pass

    plain = PlainHandler(*stage.parts(handler, model=dict[str, int]))
    items, answers, late = plain.dash(deque([make_item(1, b'{"number": "x"}'), make_item(2)]))
    assert (len(items), answers) == (1, [])
    assert late is not None
    (answer,) = await late
    assert isinstance(answer, Reject)


async def test_a_cancellation_from_elsewhere_ends_no_lane(stage: Stage) -> None:
    """What a handler awaits may be cancelled by others: its event fails, the next is handled."""
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handler(event: Event[dict[str, int]]) -> None:
        if event.data["number"] < 2:
            await shared

    done: list[int] = []
    failed: list[tuple[int, str]] = []

    def ended(items: Sequence[Item], answers: Sequence[Answer], latency_ms: float) -> None:
        done.extend(item.key for item in items)

    def broke(items: Sequence[Item], error: BaseException) -> None:
        failed.extend((item.key, type(error).__name__) for item in items)

    plain = PlainHandler(*stage.parts(handler, concurrency=2))
    lane = Lane(plain, 100, ended, broke)
    lane.put(list(_five()))
    await until_true(lambda: len(lane.tasks) == 2, "both wait")
    shared.cancel()
    await until_true(lambda: not lane.tasks, "all are handled")
    assert sorted(done) == [2, 3, 4]
    assert failed == [(0, "BadHandler"), (1, "BadHandler")]
