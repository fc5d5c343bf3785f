"""Where claimed items wait for their handler: one lane per handler, bounded in width and depth."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from penstock.kernel.errors import BadHandler
from penstock.kernel.handler import TURNS, Answer, Handler, Quick
from penstock.kernel.queue import Item

WINDOW_S = 0.1
# Where the end of one item lets the next be claimed, more of them have to be on their way at once.
SUCCESSIVE_WINDOW_S = 0.25

Done = Callable[[Sequence[Item], Sequence[Answer], float], None]
Failed = Callable[[Sequence[Item], BaseException], None]


@dataclass(slots=True)
class Lane:
    """Runs one handler, at most `concurrency` calls at a time.

    The window is how many items may wait here unstarted: about what the handler ends in `window_s`
    seconds of work. So a fast handler gets large batches, and a slow one does not hoard what
    another worker could do. Time without work does not count: a database that takes long to answer
    a claim must be asked for more at once, not for less.
    """

    handler: Handler
    window_max: int
    done: Done
    failed: Failed
    window_s: float = WINDOW_S
    window: int = 0
    waiting: deque[Item] = field(default_factory=deque)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    ended: int = 0
    rate: float = 0.0
    busy_s: float = 0.0
    busy_since: float = 0.0
    closed: bool = False

    def __post_init__(self) -> None:
        self.window = min(self.window_max, self._width())

    def _width(self) -> int:
        return self.handler.size * self.handler.concurrency

    def room(self) -> int:
        """How many more items may wait here; 0 until at least half the window is free."""
        if self.closed:
            return 0
        free = self.window - len(self.waiting)
        return free if free * 2 >= self.window else 0

    def adapt(self) -> None:
        """Set the window by how fast items ended since the last call, while there were any."""
        if self.tasks:
            self._pause()
            self.busy_since = monotonic()
        if self.busy_s == 0.0:
            return
        now = self.ended / max(self.busy_s, 0.001)
        self.ended, self.busy_s = 0, 0.0
        self.rate = now if now > self.rate else (self.rate + now) / 2
        wanted = max(self._width(), int(self.rate * self.window_s))
        self.window = min(self.window_max, wanted)

    def _pause(self) -> None:
        self.busy_s += monotonic() - self.busy_since

    def put(self, items: Sequence[Item]) -> None:
        """Queue items and start as many calls as the handler's concurrency allows."""
        self.waiting.extend(items)
        if not self.tasks:
            self.busy_since = monotonic()
        wanted = -(-len(self.waiting) // self.handler.size)
        for _ in range(min(self.handler.concurrency - len(self.tasks), wanted)):
            task = asyncio.create_task(self._run())
            self.tasks.add(task)

    def take_unstarted(self) -> list[Item]:
        """Take away what has not started, for release."""
        items = list(self.waiting)
        self.waiting.clear()
        return items

    async def _run(self) -> None:
        # Counted out before anything else can run: a done callback comes a moment later, and items
        # put in that moment would wait for a call that has already ended.
        try:
            await self._work()
        finally:
            task = asyncio.current_task()
            assert task is not None
            self.tasks.discard(task)
            if not self.tasks:
                self._pause()

    async def _work(self) -> None:
        # A handler that never really waits would keep the loop to itself; let others in now and
        # then (claims, finishes and lease extension share this loop).
        turns = 0
        while self.waiting:
            handler = self.handler
            if isinstance(handler, Quick):
                await self._dash(handler)
                turns += TURNS
            else:
                count = min(handler.size, len(self.waiting))
                items = [self.waiting.popleft() for _ in range(count)]
                await self._account(items, handler.handle(items), monotonic())
                turns += 1
            if turns >= TURNS:
                turns = 0
                await asyncio.sleep(0)

    async def _dash(self, handler: Quick) -> None:
        started = monotonic()
        items, answers, late = handler.dash(self.waiting)
        begun = items
        if late is not None:
            begun = items[:-1]
        if begun:
            self.done(begun, answers, (monotonic() - started) * 1000 / len(begun))
            self.ended += len(begun)
        if late is not None:
            await self._account(items[-1:], late, started)

    async def _account(
        self, items: Sequence[Item], answering: Awaitable[Sequence[Answer]], started: float
    ) -> None:
        try:
            answers = await answering
            if len(answers) != len(items):
                raise BadHandler(f"{len(answers)} answers for {len(items)} items")
            self.done(items, answers, (monotonic() - started) * 1000)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self.failed(items, cancelled)
                raise
            # Not us: something that the handler awaited was cancelled, an error like others.
            self.failed(items, BadHandler("what the handler waited for was cancelled"))
        except Exception as error:  # the boundary: whatever it was, the items are accounted for
            self.failed(items, error)
        self.ended += len(items)
