"""A small HTTP/1.1 client for many equal requests: raw protocol, keep-alive, one at a time.

The crowd shares two cores with what it measures; a general client would take most of them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import cast

_LENGTH = b"content-length:"
RECONNECT_S = 0.05


@dataclass(slots=True)
class Request:
    """One request: who asks, the bytes to send, and when it was first sent."""

    buyer: int
    data: bytes
    forged: bool = False
    started: float = 0.0
    tries: int = 0


Answered = Callable[[Request, int, bytes], None]
Next = Callable[[], Request | None]


class Line(asyncio.Protocol):
    """One connection: takes the next request as soon as the answer to the last has come."""

    def __init__(self, take: Next, answered: Answered, lost: "Callable[[Line], None]") -> None:
        self._take = take
        self._answered = answered
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self.request: Request | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has taken the call."""
        self._transport = cast(asyncio.Transport, transport)
        self.proceed()

    def proceed(self) -> None:
        """Send the next request, if this line is free and there is one."""
        if self._transport is None or self.request is not None:
            return
        request = self._take()
        if request is None:
            return
        self.request = request
        request.tries += 1
        # From the first try on: a buyer's time does not start anew when a server dies.
        request.started = request.started or monotonic()
        self._transport.write(request.data)

    def data_received(self, data: bytes) -> None:
        """Some of an answer, most often all of it."""
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            return
        length = _length_of(data[:end])
        if len(data) < end + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        request, self.request = self.request, None
        if request is not None:
            self._answered(request, int(data[9:12]), data[end + 4 : end + 4 + length])
        self.proceed()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has gone; whoever waited asks again elsewhere."""
        del exc  # what broke does not matter
        self._transport = None
        self._buffer = b""
        self._lost(self)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()


def _length_of(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(_LENGTH)
    if at < 0:
        return 0
    end = lower.find(b"\r\n", at)
    return int(lower[at + len(_LENGTH) : end if end >= 0 else len(lower)])


class Lines:
    """Many connections to one server; those that break are made anew until closed."""

    def __init__(self, port: int, count: int, *, take: Next, answered: Answered) -> None:
        self._port = port
        self._count = count
        self._take = take
        self._answered = answered
        self._again: Callable[[Request], None] = lambda _: None
        self._lines: set[Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, again: Callable[[Request], None]) -> None:
        """Connect; `again` gets each request whose connection broke before the answer."""
        self._again = again
        await asyncio.gather(*(self._connect() for _ in range(self._count)))

    def proceed(self) -> None:
        """Let idle lines look for requests."""
        for line in tuple(self._lines):
            line.proceed()

    def close(self) -> None:
        """Hang up everywhere."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for line in tuple(self._lines):
            line.close()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._closed:
            try:
                await loop.create_connection(self._new_line, "127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(RECONNECT_S)
            else:
                return

    def _new_line(self) -> Line:
        line = Line(self._take, self._answered, self._broken)
        self._lines.add(line)
        return line

    def _broken(self, line: Line) -> None:
        self._lines.discard(line)
        if self._closed:
            return
        request, line.request = line.request, None
        if request is not None:
            self._again(request)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
