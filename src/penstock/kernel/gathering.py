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
HeardT = TypeVar("HeardT", contravariant=True)
TOLD_AT_ONCE = 32


class Asker(Protocol[HeardT]):
    """Who is told the answer: a future, or something cheaper of the same form."""

    def done(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def set_result(self, result: HeardT, /) -> None:
        """Tell the answer."""
        ...

    def set_exception(self, exception: Exception, /) -> None:
        """Tell what went wrong."""
        ...


@dataclass(slots=True, eq=False)
class Waiter(Generic[ItemT, AnswerT]):
    """An item and who waits for its answer."""

    item: ItemT
    answer: Asker[AnswerT]
    weight: int = 0

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
        """Take out the next call's, also those whose caller has gone."""
        ...

    def returned(self, batch: Sequence[Waiter[ItemT, AnswerT]]) -> None:
        """Learn that what was taken has been answered."""
        ...


class InOrder(Generic[ItemT, AnswerT]):
    """A line in order of arrival; a call takes so many items and so much weight, at least one."""

    def __init__(self, *, count_max: int, weight: Callable[[ItemT], int], weight_max: int) -> None:
        self._waiters: deque[Waiter[ItemT, AnswerT]] = deque()
        self.unanswered = self.unanswered_weight = 0
        self._count_max = count_max
        self._weight = weight
        self._weight_max = weight_max

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter[ItemT, AnswerT]) -> None:
        """Put one at the end."""
        waiter.weight = self._weight(waiter.item)
        self.unanswered += 1
        self.unanswered_weight += waiter.weight
        self._waiters.append(waiter)

    def take(self) -> list[Waiter[ItemT, AnswerT]]:
        """Take from the front until the next one would be too many or too heavy."""
        batch: list[Waiter[ItemT, AnswerT]] = []
        weight = 0
        while self._waiters and len(batch) < self._count_max:
            weight += self._waiters[0].weight
            if batch and weight > self._weight_max:
                break
            batch.append(self._waiters.popleft())
        return batch

    def returned(self, batch: Sequence[Waiter[ItemT, AnswerT]]) -> None:
        """Nobody waits for these any more."""
        self.unanswered -= len(batch)
        self.unanswered_weight -= sum(waiter.weight for waiter in batch)


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
        self._calls = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._due = False
        self._loop = asyncio.get_running_loop()

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight and nobody is ready to go; `rested` hears of it."""
        return not self._tasks and not len(self._line)

    def ask(self, item: ItemT) -> "asyncio.Future[AnswerT]":
        """The answer to one item, to be awaited; raises what its call raised.

        An error means that the outcome is unknown: only an idempotent repeat is safe. Cancelling it
        before it was sent takes the item out of the line.
        """
        answer: asyncio.Future[AnswerT] = self._loop.create_future()
        self.put(item, answer)
        return answer

    def put(self, item: ItemT, asker: Asker[AnswerT]) -> None:
        """The same for a caller who is told at once, without a turn of the loop in between."""
        self._line.add(Waiter(item, asker))
        if not self._due and self._may_send():
            # At the end of this turn of the loop: what arrives in the same turn goes along.
            self._due = True
            self._loop.call_soon(self._send)

    async def close(self) -> None:
        """Let the calls in flight end; those still waiting get their answers too."""
        while self._tasks or self._due:
            await (asyncio.wait(self._tasks) if self._tasks else asyncio.sleep(0))

    def _may_send(self) -> bool:
        if not self._calls:
            return bool(len(self._line))
        return self._calls < self._calls_max and len(self._line) >= self._second_call_min

    def _send(self) -> None:
        self._due = False
        while self._may_send():
            self._calls += 1
            task = self._loop.create_task(self._run(self._line.take()))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _run(self, taken: list[Waiter[ItemT, AnswerT]]) -> None:
        # Whoever has gone before being sent is left out: nothing to undo.
        batch = [waiter for waiter in taken if not waiter.answer.done()]
        try:
            outcomes = await self._outcomes(batch)
        finally:
            # The next call goes before this one's answers are told: the database need not wait.
            self._calls -= 1
            self._line.returned(taken)
            self._send()
        for number, (waiter, outcome) in enumerate(zip(batch, outcomes, strict=True), 1):
            self._tell(waiter, outcome)
            if number % TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)  # these answers go out, and what has come in is read

    async def _outcomes(
        self, batch: Sequence[Waiter[ItemT, AnswerT]]
    ) -> Sequence[AnswerT | Exception]:
        if not batch:
            return ()
        try:
            answers = await self._call([waiter.item for waiter in batch])
            if len(answers) != len(batch):
                raise ValueError(f"{len(answers)} answers to {len(batch)} items")
        except Exception as error:  # nobody is left waiting for ever
            return [copy(error) for _ in batch]  # each waiter's traceback is its own
        return answers

    def _tell(self, waiter: Waiter[ItemT, AnswerT], outcome: AnswerT | Exception) -> None:
        try:
            waiter.settle(outcome)
        except Exception as fault:  # the asker's own; the others in line get their answers
            told = {"message": "an answer could not be told", "exception": fault}
            self._loop.call_exception_handler(told)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self.idle:
            self._rested()
