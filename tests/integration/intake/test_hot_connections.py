"""Connections of the hot routes, byte by byte: what is answered there, and what is handed over."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.integration.intake.test_http import CLAIM, application, token
from tests.support.bridge import POOL, Sale
from tests.support.serving import serving
from tests.support.waiting import until, until_true

from penstock.api.hot import HotProtocol


@dataclass
class Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
        lines = head.decode().lower().splitlines()
        length = next(int(x.split(":")[1]) for x in lines if x.startswith("content-length:"))
        return int(lines[0].split()[1]), await self.reader.readexactly(length)

    async def closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), 10) == b""


def claim(user: str, request_id: str = "", *, version: str = "1.1", more: str = "") -> bytes:
    document = {"p_pool_id": POOL, "p_request_id": request_id or None}
    body = json.dumps(document).encode()
    bearer = token(user)["Authorization"]
    head = (
        f"POST {CLAIM} HTTP/{version}\r\nhost: x\r\nauthorization: {bearer}\r\n"
        f"content-length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def wired(base: str) -> AsyncIterator[Wire]:
    host, port = base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def base(database_url: str, ledger_url: str, sale: Sale) -> AsyncIterator[str]:
    await sale.engine.stock(50)
    async with serving(application(database_url, ledger_url)) as address:
        yield address


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What uvicorn was given, connection by connection."""
    given: list[bytes] = []
    hand_over = HotProtocol._hand_over

    def seen(self: HotProtocol, data: bytes) -> None:
        given.append(data)
        hand_over(self, data)

    monkeypatch.setattr(HotProtocol, "_hand_over", seen)
    return given


async def slots_of(sale: Sale, user: str) -> int:
    query = "select count(*) from inventory_slots where locked_by = $1"
    found: int = await sale.engine.conn.fetchval(query, user)
    return found


async def test_claims_of_one_connection_are_answered_one_after_the_other(
    base: str, sale: Sale, handed_over: list[bytes]
) -> None:
    async with wired(base) as wire:
        seen = set()
        for number in range(5):
            wire.send(claim("ann", f"r{number}"))
            status, body = await wire.answer()
            assert status == 200
            seen.add(body)
        assert len(seen) == 5
    assert handed_over == []
    assert await slots_of(sale, "ann") == 5


async def test_requests_that_come_together_are_each_answered_in_order(
    base: str, sale: Sale, handed_over: list[bytes]
) -> None:
    async with wired(base) as wire:
        wire.send(claim("ann", "a") + claim("ann", "b"))
        first, second = await wire.answer(), await wire.answer()
    assert (first[0], second[0]) == (200, 200)
    assert first[1] != second[1]
    assert len(handed_over) == 1
    async with wired(base) as wire:
        wire.send(claim("bob", "a"))
        wire.send(claim("bob", "b"))
        assert [(await wire.answer())[0] for _ in range(2)] == [200, 200]
    assert await slots_of(sale, "bob") == 2


async def test_a_request_in_pieces_is_claimed_once(
    base: str, sale: Sale, handed_over: list[bytes]
) -> None:
    whole = claim("ann", "a")
    for cut in (3, 40, len(whole) - 5):
        async with wired(base) as wire:
            wire.send(whole[:cut])
            await wire.writer.drain()
            await until_true(lambda: handed_over, "the first piece has arrived")
            wire.send(whole[cut:])
            assert (await wire.answer())[0] == 200
        handed_over.clear()
    assert await slots_of(sale, "ann") == 1  # the same request id each time


async def test_other_paths_follow_on_the_same_connection(base: str) -> None:
    async with wired(base) as wire:
        wire.send(claim("ann", "a"))
        assert (await wire.answer())[0] == 200
        wire.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await wire.answer())[0] == 200
        wire.send(claim("ann", "b"))
        assert (await wire.answer())[0] == 200


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"GET / HTTP/9.9\r\n\r\n", {400}),
        (b"POST " + CLAIM.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n", {400}),
        (
            b"POST " + CLAIM.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n"
            b"transfer-encoding: chunked\r\n\r\n{}",
            {400},
        ),
        (b"POST " + CLAIM.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}", {401}),
    ],
)
async def test_what_is_malformed_or_nobodys_is_refused(
    base: str, data: bytes, statuses: set[int]
) -> None:
    async with wired(base) as wire:
        wire.send(data)
        head = await asyncio.wait_for(wire.reader.readline(), 10)
        assert int(head.split()[1]) in statuses


async def test_a_connection_to_be_closed_is_closed(base: str) -> None:
    async with wired(base) as wire:
        wire.send(claim("ann", "a", more="connection: close\r\n"))
        assert (await wire.answer())[0] == 200
        assert await wire.closed()
    async with wired(base) as wire:
        wire.send(claim("ann", "b", version="1.0"))
        assert (await wire.answer())[0] == 200
        assert await wire.closed()


async def test_an_idle_connection_is_closed(database_url: str, ledger_url: str, sale: Sale) -> None:
    await sale.engine.stock(2)
    async with (
        serving(application(database_url, ledger_url), keep_alive_s=1) as base,
        wired(base) as silent,
        wired(base) as wire,
    ):
        wire.send(claim("ann", "a"))
        assert (await wire.answer())[0] == 200
        assert await wire.closed()
        assert await silent.closed()


async def test_stopping_answers_what_is_under_way(
    database_url: str, ledger_url: str, sale: Sale
) -> None:
    """A claim that waits in the database while the server stops gets its answer."""
    await sale.engine.stock(1)
    stack = contextlib.AsyncExitStack()
    base = await stack.enter_async_context(serving(application(database_url, ledger_url)))
    async with wired(base) as wire:
        async with sale.engine.conn.transaction():
            await sale.engine.conn.execute("lock table inventory_slots in access exclusive mode")
            wire.send(claim("ann", "a"))

            async def waits() -> object:
                query = "select count(*) from pg_locks where not granted"
                return await sale.engine.conn.fetchval(query)

            await until(waits, "the claim waits for the lock")
            stopping = asyncio.create_task(stack.aclose())
            await until(lambda: _refuses(base), "the server takes no more connections")
        assert (await wire.answer())[0] == 200
        assert await wire.closed()
    await stopping
    assert await slots_of(sale, "ann") == 1


async def _refuses(base: str) -> bool:
    try:
        async with wired(base):
            return False
    except OSError:
        return True


async def test_a_caller_who_leaves_harms_nobody(base: str, sale: Sale) -> None:
    async with wired(base) as wire:
        wire.send(claim("ann", "a"))
        wire.writer.transport.abort()
    async with wired(base) as wire:
        wire.send(claim("bob", "a"))
        assert (await wire.answer())[0] == 200


async def test_a_caller_who_never_reads_is_asked_no_more_and_cut_off(
    database_url: str, ledger_url: str, sale: Sale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers must not pile up in memory."""
    made: list[HotProtocol] = []
    connection_made = HotProtocol.connection_made

    def narrow(self: HotProtocol, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made.append(self)
        connection_made(self, transport)

    monkeypatch.setattr(HotProtocol, "connection_made", narrow)
    nobody = b"POST " + CLAIM.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
    async with serving(application(database_url, ledger_url), keep_alive_s=1) as base:
        host, port = base.removeprefix("http://").split(":")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((host, int(port)))
            await until_true(lambda: made, "it is connected")
            transport = made[0]._transport
            for number in range(1, 2000):
                deaf.sendall(nobody)
                await _answered(made[0], number)
                if not transport.is_reading():
                    break
            assert not transport.is_reading(), "it is heard no more"
            assert transport.get_write_buffer_size() < 128 * 1024
            await until_true(transport.is_closing, "it is cut off")


async def _answered(hot: HotProtocol, number: int) -> None:
    def answered() -> bool:
        return hot._state.total_requests >= number and hot._answering is None

    await until_true(answered, "it is answered")
