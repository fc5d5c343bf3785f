"""The buyers, in a process of their own: `python -m penstock.demo.crowd`.

Takes commands as lines of JSON on standard input, answers in lines of JSON: figures several times
a second, a line when a burst is over, and in the end who was told what. When standard input or
output closes, the demo is gone: the crowd then ends the server, which has no parent any more.
"""

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from penstock.demo.client import Lines, Request
from penstock.demo.latency import Latencies
from penstock.demo.plan import shuffled
from penstock.demo.tokens import Mint
from penstock.kernel.loops import run_fast

SAY_EVERY_S = 0.1
RETRY_S = 0.1
PATH = b"/rest/v1/rpc/claim_resource_and_queue"


def user_of(buyer: int) -> str:
    """The name of a buyer; seats and tickets carry it."""
    return f"buyer-{buyer:06d}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the crowd is told when it starts."""

    port: int
    pool: str
    secret: str
    forged_secret: str
    seed: int
    connections: int
    server_pid: int


class Crowd:
    """Buyers of one pool, and what each was told."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mint = Mint(settings.secret)
        self._forger = Mint(settings.forged_secret)
        self._waiting: deque[Request] = deque()
        self._open = 0
        self._over = asyncio.Event()
        self._measured = True
        self.lines = Lines(
            settings.port, settings.connections, take=self._take, answered=self._answered
        )
        self.latencies = Latencies()
        self.seats: dict[int, str] = {}
        self.others: list[tuple[int, str]] = []
        self.counts = dict.fromkeys(
            ("requests", "yes", "sold_out", "same", "forged", "let_in", "retried", "odd"), 0
        )
        self.odd: dict[str, int] = {}

    async def burst(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send one drop's buyers at once, each clicking so many times; returns when all know."""
        buyers = shuffled(command["first"], command["count"], self._settings.seed)
        forged = shuffled(command["first"], command["forged"], self._settings.seed + 1)
        requests = [self._request(buyer, forged=False) for buyer in buyers]
        clicks = [
            Request(request.buyer, request.data)
            for request in requests
            for _ in range(command["clicks"])
        ]
        clicks[len(clicks) // 2 : 0] = [self._request(buyer, forged=True) for buyer in forged]
        self._measured = command["measured"]
        return await self._send(clicks)

    async def again(self) -> dict[str, Any]:
        """Everybody who holds a seat asks once more, with the same request id."""
        self._measured = False
        return await self._send([self._request(buyer, forged=False) for buyer in self.seats])

    async def _send(self, requests: list[Request]) -> dict[str, Any]:
        before = self.counts["requests"]
        self._waiting.extend(requests)
        self._open += len(requests)
        self._over.clear()
        started = monotonic()
        self.lines.proceed()
        if requests:
            await self._over.wait()
        return {
            "answers": self.counts["requests"] - before,
            "seconds": monotonic() - started,
        }

    def _request(self, buyer: int, *, forged: bool) -> Request:
        user = user_of(buyer)
        token = (self._forger if forged else self._mint).token(user)
        body = json.dumps(
            {"p_pool_id": self._settings.pool, "p_user_id": user, "p_request_id": f"click-{buyer}"}
        ).encode()
        head = b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer %s\r\n" % (
            PATH,
            token,
        )
        rest = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        return Request(buyer, head + rest + body, forged)

    def _take(self) -> Request | None:
        return self._waiting.popleft() if self._waiting else None

    def retry(self, request: Request) -> None:
        """Ask again in a moment with the same request id: the answer was lost, or not yet."""
        self.counts["retried"] += 1

        def put() -> None:
            self._waiting.append(request)
            self.lines.proceed()

        asyncio.get_running_loop().call_later(RETRY_S, put)

    def _answered(self, request: Request, status: int, body: bytes) -> None:
        if status >= 500 or status == 429:
            self.retry(request)
            return
        self.counts["requests"] += 1
        if request.forged:
            self.counts["forged" if status == 401 else "let_in"] += 1
        elif status != 200:
            self.counts["odd"] += 1
            self.odd[f"{status} {body[:200]!r}"] = 1
        else:
            if self._measured:
                self.latencies.add(monotonic() - request.started)
            self._told(request.buyer, body)
        self._open -= 1
        if self._open == 0:
            self._over.set()

    def _told(self, buyer: int, body: bytes) -> None:
        if body == b"null":
            self.counts["sold_out"] += 1
            return
        seat = body.strip(b'"').decode()
        held = self.seats.get(buyer)
        if held == seat:
            self.counts["same"] += 1
            return
        self.counts["yes"] += 1
        if held is None:
            self.seats[buyer] = seat
        else:
            self.others.append((buyer, seat))

    def figures(self) -> dict[str, Any]:
        """What to show now."""
        return {**self.counts, "p50_ms": self.latencies.at(0.50), "p99_ms": self.latencies.at(0.99)}

    def promises(self) -> Iterator[tuple[str, str]]:
        """Every user and seat that were ever answered together."""
        for buyer, seat in (*self.seats.items(), *self.others):
            yield user_of(buyer), seat


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


async def _obey(crowd: Crowd, commands: asyncio.StreamReader) -> None:
    await crowd.lines.open(crowd.retry)
    _say(kind="ready")
    while line := await commands.readline():
        command = json.loads(line)
        match command["kind"]:
            case "burst":
                ended = await crowd.burst(command)
            case "again":
                ended = await crowd.again()
            case _:
                _say(kind="report", promises=list(crowd.promises()), odd=list(crowd.odd))
                continue
        _say(kind="figures", **crowd.figures())
        _say(kind="over", **ended)


async def _tell(crowd: Crowd) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)
        _say(kind="figures", **crowd.figures())


async def _run() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    settings = Settings(**json.loads(await commands.readline()))
    crowd = Crowd(settings)
    tasks = {asyncio.create_task(_obey(crowd, commands)), asyncio.create_task(_tell(crowd))}
    try:
        # In the middle of a burst no command is read; then the demo is missed as who hears figures.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        crowd.lines.close()
        with suppress(ProcessLookupError):
            os.kill(settings.server_pid, signal.SIGTERM)


def main() -> None:
    """Run until the demo is gone."""
    # A terminal's Ctrl-C goes to every process in it; ours is to be told by the demo.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        run_fast(_run())


if __name__ == "__main__":
    main()
