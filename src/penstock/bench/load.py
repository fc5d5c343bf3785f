"""A load generator for one server: raw HTTP/1.1, keep-alive, one request at a time per connection.

It shares the machine with what it measures; a general client would take most of it.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import cast

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Load:
    """What came of a run."""

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Load") -> None:
        """Take another round in."""
        self.seconds += other.seconds
        self.latencies_s += other.latencies_s
        self.statuses += other.statuses

    @property
    def answered(self) -> int:
        """How many requests were answered with 2xx."""
        return sum(count for status, count in self.statuses.items() if 200 <= status < 300)

    @property
    def per_s(self) -> float:
        """The same per second."""
        return self.answered / self.seconds

    def latency_ms(self, share: float) -> float:
        """What this share of all answers did not exceed."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the answer to the last has come."""

    def __init__(self, make: Callable[[], bytes | None], load: Load) -> None:
        self._make = make
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        request = self._make()
        assert self._transport is not None, "only a made connection sends"
        if request is None:
            self._transport.close()
            return
        self._sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < end + 4 + _length_of(data[:end]):
            self._buffer = data
            return
        self._load.latencies_s.append(perf_counter() - self._sent_at)
        self._load.statuses[int(data[9:12])] += 1
        self._buffer = b""
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # what broke shows in the statuses
        if not self.done.done():
            self.done.set_result(None)


@lru_cache(maxsize=64)
def _length_of(head: bytes) -> int:
    """How long the body is; the answers of a second have the same few heads."""
    found = _LENGTH.search(head)
    return int(found.group(1)) if found is not None else 0


async def run_load(
    port: int, connections: int, *, seconds: float, make: Callable[[], bytes]
) -> Load:
    """Keep so many connections busy for so long; `make` gives the bytes of the next request."""
    load = Load()
    loop = asyncio.get_running_loop()
    started = perf_counter()

    def following() -> bytes | None:
        return make() if perf_counter() - started < seconds else None

    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: _Connection(following, load), "127.0.0.1", port)
            for _ in range(connections)
        )
    )
    await asyncio.gather(*(connection.done for _, connection in made))
    load.seconds = perf_counter() - started
    return load


def post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The bytes of a request."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    return head.encode() + body
