"""Many events in few statements. The next ones are encoded while the last are on their way."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.kernel.ids import uuid7

CHUNK = 1000
CHUNK_CHARS = 4 * 1024 * 1024
BREATH = 100  # events, after which the loop may go on with what it sends


@dataclass(slots=True)
class _Chunk:
    """The events of one statement: a JSON array of `[id, payload]`."""

    events: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, payload: str) -> None:
        """Give a payload an id and take it in."""
        self.events.append(f'["{uuid7()}",{payload}]')
        self.length += len(payload)

    def full(self) -> bool:
        """Whether it is enough for one statement."""
        return len(self.events) == CHUNK or self.length > CHUNK_CHARS

    def text(self) -> str:
        """The array."""
        return f"[{','.join(self.events)}]"


async def send_all(payloads: Iterable[str], send: Callable[[str], Coroutine[Any, Any, int]]) -> int:
    """Send payloads, one statement at a time, in order; returns how many events it were.

    While a statement is under way the next one is put together: the server and this process would
    otherwise wait for each other by turns. Nothing is under way any more when it returns or raises.
    """
    count = 0
    running: asyncio.Task[int] | None = None
    chunk = _Chunk()
    try:
        for payload in payloads:
            chunk.add(payload)
            if chunk.full():
                count += 0 if running is None else await running
                running = asyncio.create_task(send(chunk.text()))
                chunk = _Chunk()
            if len(chunk.events) % BREATH == 0:
                await asyncio.sleep(0)
        count += 0 if running is None else await running
        return count + (await send(chunk.text()) if chunk.events else 0)
    except asyncio.CancelledError:
        if running is not None:
            running.cancel()
        raise
    finally:
        if running is not None:
            await asyncio.gather(running, return_exceptions=True)


def send_all_sync(payloads: Iterable[str], send: Callable[[str], int]) -> int:
    """The same, one after the other."""
    count = 0
    chunk = _Chunk()
    for payload in payloads:
        chunk.add(payload)
        if chunk.full():
            count += send(chunk.text())
            chunk = _Chunk()
    return count + (send(chunk.text()) if chunk.events else 0)
