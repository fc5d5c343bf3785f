"""Batches: the next is encoded while the last is on its way, and nothing is left under way."""

import asyncio
from collections.abc import Iterator

import pytest

from penstock.outbox.batches import CHUNK, send_all


class Server:
    """Takes statements, and answers each when it is told to."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.under_way = 0
        self.started = asyncio.Event()
        self.answer = asyncio.Event()

    async def send(self, events: str) -> int:
        assert self.under_way == 0, "a connection takes one statement at a time"
        self.under_way += 1
        self.started.set()
        self.statements.append(events)
        try:
            await self.answer.wait()
        finally:
            self.under_way -= 1
        return events.count("{")


def _payloads(count: int) -> Iterator[str]:
    return (f'{{"n":{number}}}' for number in range(count))


async def test_the_next_events_are_encoded_while_the_last_are_on_their_way() -> None:
    server = Server()

    def payloads() -> Iterator[str]:
        for place, payload in enumerate(_payloads(2 * CHUNK + 5)):
            if place == CHUNK + CHUNK // 2:
                assert server.under_way == 1, "the first statement was sent"
                server.answer.set()  # before that it is not answered: who waits for it, waits on
            yield payload

    async with asyncio.timeout(10):
        assert await send_all(payloads(), server.send) == 2 * CHUNK + 5
    numbers = [text.count("{") for text in server.statements]
    assert numbers == [CHUNK, CHUNK, 5]
    assert f'{{"n":{CHUNK}}}' in server.statements[1], "and in order"


async def test_the_loop_goes_on_while_events_are_encoded() -> None:
    server = Server()
    server.answer.set()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await send_all(_payloads(CHUNK - 1), server.send)
    other.cancel()
    assert turns >= 9


async def test_what_is_under_way_ends_before_an_error_of_the_producer_is_told() -> None:
    server = Server()

    def payloads() -> Iterator[str]:
        yield from _payloads(CHUNK + 200)
        asyncio.get_running_loop().call_soon(server.answer.set)
        raise ZeroDivisionError

    async with asyncio.timeout(10):
        with pytest.raises(ZeroDivisionError):
            await send_all(payloads(), server.send)
    assert server.under_way == 0
    assert len(server.statements) == 1


@pytest.mark.parametrize("count", [CHUNK + 200, 10])
async def test_a_cancelled_batch_takes_its_statement_along(count: int) -> None:
    server = Server()
    publishing = asyncio.create_task(send_all(_payloads(count), server.send))
    await server.started.wait()
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert server.under_way == 0


async def test_an_error_of_the_server_stops_the_rest() -> None:
    sent: list[str] = []

    async def send(events: str) -> int:
        sent.append(events)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await send_all(_payloads(5 * CHUNK), send)
    assert len(sent) == 1
