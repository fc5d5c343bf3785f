"""Waiting on conditions, always with an end: a test never sleeps and hopes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

LOOK_EVERY_S = 0.01


async def until(
    condition: Callable[[], Awaitable[object]], what: str, *, within_s: float = 10.0
) -> None:
    """Return as soon as the condition holds; fail with `what` if it does not in time."""
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        await asyncio.sleep(LOOK_EVERY_S)


async def until_true(condition: Callable[[], object], what: str, *, within_s: float = 10.0) -> None:
    """The same for a condition that needs no waiting itself."""

    async def look() -> object:
        return condition()

    await until(look, what, within_s=within_s)
