"""A receiver of webhooks on a real socket: remembers every request and answers as the test says."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        """The constant id of the event."""
        return self.headers["webhook-id"]

    @property
    def document(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


Answer: TypeAlias = "int | web.Response"
Answering: TypeAlias = Callable[[Received], "Answer | Awaitable[Answer]"]


@dataclass(slots=True)
class Receiver:
    """Where it is, what it saw, and how it answers: 204 unless told otherwise."""

    base: str = ""
    answering: Answering = lambda _request: 204
    seen: list[Received] = field(default_factory=list)
    running: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def url(self, path: str = "/hook") -> str:
        """An address of it."""
        return f"{self.base}{path}"

    def at(self, path: str) -> list[Received]:
        """What came to one address."""
        return [one for one in self.seen if one.path == path]

    def ids(self, path: str | None = None) -> Counter[str]:
        """How often each event came."""
        return Counter(one.id for one in self.seen if path in (None, one.path))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Take one request."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        one = Received(request.path, headers, await request.read(), monotonic())
        self.seen.append(one)
        self.running[one.path] += 1
        self.most[one.path] = max(self.most[one.path], self.running[one.path])
        try:
            answer = self.answering(one)
            if not isinstance(answer, int | web.Response):
                answer = await answer
        finally:
            self.running[one.path] -= 1
        return web.Response(status=answer) if isinstance(answer, int) else answer


@contextlib.asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver that listens while the block runs."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    bound = runner.addresses[0][1]
    receiver.base = f"http://127.0.0.1:{bound}"
    try:
        yield receiver
    finally:
        await asyncio.wait_for(runner.cleanup(), 5)
