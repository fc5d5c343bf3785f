"""A proxy between a client and Postgres that delays, stalls, cuts and swallows on command.

It listens on a loopback port and speaks to the server's Unix socket. Faults are set on the proxy
and hold for all its links, or are asked of one link. Nothing is random: the test says what happens.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

NOTIFICATION = b"A"
READY = b"Z"
_CHUNK = 65536


def _is_commit(data: bytes) -> bool:
    # A simple query; the words also stand in start-up parameters ("read committed").
    return data[:1] == b"Q" and b"COMMIT" in data.upper()


class Link:
    """One client connection and its twin to the server."""

    def __init__(self, proxy: "Proxy", client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.sent = bytearray()
        self.bytes_up = 0
        self._swallowing = False

    async def run(self, from_client: asyncio.StreamReader) -> None:
        """Carry bytes both ways until one side ends or the link is cut."""
        try:
            from_server, self._server = await asyncio.open_unix_connection(self._proxy.upstream)
            ways = [
                asyncio.create_task(self._up(from_client)),
                asyncio.create_task(self._down(from_server)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            return  # the server is down; the client sees its connection close
        finally:
            self.cut()

    def cut(self) -> None:
        """Close both sides at once, without a word."""
        for writer in (self._client, self._server):
            if writer is not None and writer.transport is not None:
                writer.transport.abort()

    def half_close(self) -> None:
        """Tell the client that the server will say nothing more, and keep listening to it."""
        self._client.write_eof()

    def carried(self, pattern: bytes) -> bool:
        """Whether the client has sent these bytes on this link."""
        return pattern in self.sent

    async def _up(self, reader: asyncio.StreamReader) -> None:
        assert self._server is not None
        while data := await reader.read(_CHUNK):
            await self._hold()
            self.sent += data
            self.bytes_up += len(data)
            if self._proxy.swallow_answer_to is not None and self._proxy.swallow_answer_to(data):
                # The server gets it and acts on it; the client never hears what came of it.
                self._swallowing = True
                self._proxy.swallowed += 1
                self._proxy.swallow_answer_to = None
            if self._proxy.cut_before is not None and self._proxy.cut_before(data):
                self._proxy.cut_before = None
                self._proxy.swallowed += 1
                return
            limit = self._proxy.drop_after_bytes
            if limit is not None and self.bytes_up > limit:
                return
            self._server.write(data)
            await self._server.drain()

    async def _down(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                await self._hold()
                kind = head[:1]
                if self._swallowing:
                    if kind == READY:
                        return  # executed and committed: now the connection is gone
                    continue
                if kind == NOTIFICATION and self._proxy.swallow_notifications:
                    continue
                self._client.write(head + body)
                await self._client.drain()

    async def _hold(self) -> None:
        if self._proxy.delay_s:
            await asyncio.sleep(self._proxy.delay_s)
        await self.flowing.wait()


class Proxy:
    """Listens while the block runs; `url` leads through it."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        query = parse_qs(parts.query)
        self.upstream = str(Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}")
        self._login = parts.username or "postgres"
        self._database = parts.path.lstrip("/")
        self._server: asyncio.Server | None = None
        self.links: list[Link] = []
        self.refusing = False
        self.delay_s = 0.0
        self.drop_after_bytes: int | None = None
        self.swallow_notifications = False
        self.swallow_answer_to: Callable[[bytes], bool] | None = None
        self.cut_before: Callable[[bytes], bool] | None = None
        self.swallowed = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """The loopback port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The database's URL through the proxy; without TLS, so that it can read what passes."""
        login, database = self._login, self._database
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def cut(self) -> None:
        """Cut every link there is; new ones may come."""
        for link in self.links:
            link.cut()

    def stall(self, *links: Link) -> None:
        """Let nothing through on these links (all if none is named), as a dead network would."""
        for link in links or self.links:
            link.flowing.clear()

    def resume(self) -> None:
        """Let everything flow again."""
        for link in self.links:
            link.flowing.set()

    def cut_after_commit(self) -> None:
        """Let the next COMMIT reach the server, and cut before its answer."""
        self.swallow_answer_to = _is_commit

    def cut_before_commit(self) -> None:
        """Cut when the client sends its next COMMIT, which the server never sees."""
        self.cut_before = _is_commit

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        link = Link(self, writer)
        self.links.append(link)
        try:
            await link.run(reader)
        finally:
            self.links.remove(link)
