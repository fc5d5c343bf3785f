"""A handler stopped at each of its awaits and run again, as after a crash: do effects double?"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from penstock.testing.performing import invoke, prepare


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What happened at each await: `effects[n]` effects after a crash at await n and a second run.

    A handler that has one effect whatever happens shows nothing but ones.
    """

    effects: tuple[int, ...]

    @property
    def doubled(self) -> tuple[int, ...]:
        """The awaits at which a crash leads to more than one effect."""
        return tuple(place for place, count in enumerate(self.effects) if count > 1)

    @property
    def lost(self) -> tuple[int, ...]:
        """The awaits at which a crash leads to no effect, although the handler ran again."""
        return tuple(place for place, count in enumerate(self.effects) if count < 1)

    @property
    def holds(self) -> bool:
        """Whether every crash left exactly one effect."""
        return not self.doubled and not self.lost


class _Crash(BaseException):
    """Stands for the end of the process; nothing of the handler may catch it as an Exception."""


class _Stopping:
    """Drives a coroutine and breaks it off when it waits for the n-th time."""

    def __init__(self, work: Awaitable[object], place: int) -> None:
        self._work = work
        self._place = place

    def __await__(self) -> Generator[Any, Any, object]:
        inner = self._work.__await__()
        passed = 0
        try:
            waited = next(inner)
            while True:
                if passed == self._place:
                    # asyncio has to see the future it would have waited for given up.
                    if isinstance(waited, asyncio.Future):
                        waited._asyncio_future_blocking = False
                    inner.throw(_Crash())
                passed += 1
                yield waited
                waited = next(inner)
        except StopIteration as end:
            return end.value


async def crash_everywhere(
    handler: Callable[..., Any],
    data: object,
    *,
    effects: Callable[[], Awaitable[int]],
    **injected: object,
) -> CrashReport:
    """Run an async handler once per await in it: crash there, run it again with the same event.

    `effects` tells how many effects there have been so far, from the receiver's side.
    """
    counts: list[int] = []
    while True:
        before = await effects()
        first, arguments = prepare(handler, data, injected)
        crashed = await _crashes(handler(first, **arguments), len(counts))
        if crashed:
            await invoke(handler, first, arguments)
        counts.append(await effects() - before)
        if not crashed:
            return CrashReport(tuple(counts))


async def _crashes(work: Awaitable[object], place: int) -> bool:
    try:
        await _Stopping(work, place)
    except _Crash:
        return True
    return False
