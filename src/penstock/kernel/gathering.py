"""Requests that arrive together go to the database together, each with its own answer.

While a call is in flight, further requests gather; when it returns they go as one. There is no
timer, so a lone request does not wait, and a burst costs a few large calls instead of many small
ones. Who goes next is decided by a line, which each product gives its own shape.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False)
class Waiter(Generic[ItemT, AnswerT]):
    """An item and who waits for its answer."""

    item: ItemT
    answer: "asyncio.Future[AnswerT]"

    def settle(self, outcome: AnswerT | Exception) -> None:
        """Answer whoever waits, if anybody still does."""
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Line(Protocol[ItemT, AnswerT]):
    """The order in which waiters go."""

    def __len__(self) -> int:
        """How many could go now."""
        ...

    def add(self, waiter: Waiter[ItemT, AnswerT]) -> None:
        """Put one at the end."""
        ...

    def take(self) -> list[Waiter[ItemT, AnswerT]]:
        """Take out the next call's; those whose caller has gone are dropped."""
        ...

    def returned(self, batch: Sequence[Waiter[ItemT, AnswerT]]) -> None:
        """Learn that a call has come back."""
        ...


class InOrder(Generic[ItemT, AnswerT]):
    """A line in order of arrival; a call takes so many items and so much weight, at least one."""

    def __init__(self, *, count_max: int, weight: Callable[[ItemT], int], weight_max: int) -> None:
        self._waiters: deque[Waiter[ItemT, AnswerT]] = deque()
        self._count_max = count_max
        self._weight = weight
        self._weight_max = weight_max

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter[ItemT, AnswerT]) -> None:
        """Put one at the end."""
        self._waiters.append(waiter)

    def take(self) -> list[Waiter[ItemT, AnswerT]]:
        """Take from the front until the next one would be too many or too heavy."""
        batch: list[Waiter[ItemT, AnswerT]] = []
        weight = 0
        while self._waiters and len(batch) < self._count_max:
            waiter = self._waiters[0]
            if not waiter.answer.done():
                weight += self._weight(waiter.item)
                if batch and weight > self._weight_max:
                    break
                batch.append(waiter)
            self._waiters.popleft()
        return batch

    def returned(self, batch: Sequence[Waiter[ItemT, AnswerT]]) -> None:
        """Nothing depends on it here."""


class Gathering(Generic[ItemT, AnswerT]):
    """Groups what is asked at the same time into few calls."""

    def __init__(
        self,
        call: Callable[[Sequence[ItemT]], Awaitable[Sequence[AnswerT]]],
        line: Line[ItemT, AnswerT],
        *,
        calls_max: int = 2,
        second_call_min: int = 64,
        rested: Callable[[], object] = lambda: None,
    ) -> None:
        self._call = call
        self._line = line
        self._calls_max = calls_max
        # Another call pays when there is enough to carry: two small ones cost more than one.
        self._second_call_min = second_call_min
        self._rested = rested
        self._calls: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight and nobody is ready to go; `rested` hears of it."""
        return not self._calls and not len(self._line)

    def ask(self, item: ItemT) -> "asyncio.Future[AnswerT]":
        """The answer to one item, to be awaited; raises what its call raised.

        An error means that the outcome is unknown: only an idempotent repeat is safe. Cancelling it
        before it was sent takes the item out of the line.
        """
        waiter: Waiter[ItemT, AnswerT] = Waiter(item, self._loop.create_future())
        self._line.add(waiter)
        self._send()
        return waiter.answer

    async def close(self) -> None:
        """Let the calls in flight end; those still waiting get their answers too."""
        while self._calls:
            await asyncio.wait(self._calls)

    def _send(self) -> None:
        while len(self._line) and len(self._calls) < self._calls_max:
            if self._calls and len(self._line) < self._second_call_min:
                return
            batch = self._line.take()
            if batch:
                self._calls.add(asyncio.create_task(self._run(batch)))

    async def _run(self, batch: list[Waiter[ItemT, AnswerT]]) -> None:
        try:
            answers = await self._call([waiter.item for waiter in batch])
            for waiter, answer in zip(batch, answers, strict=True):
                waiter.settle(answer)
        except Exception as error:  # also too few answers: nobody is left waiting for ever
            for waiter in batch:
                waiter.settle(copy(error))  # each waiter's traceback is its own
        finally:
            current = asyncio.current_task()
            assert current is not None, "a call is a task"
            self._calls.discard(current)
            self._line.returned(batch)
            self._send()
            if self.idle:
                self._rested()
