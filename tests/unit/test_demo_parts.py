"""The small parts of the demo: what it counts, what it signs, what it draws."""

import asyncio
import io
import json
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from penstock.api.auth import Authenticator, Role
from penstock.demo.client import Lines, Request
from penstock.demo.latency import Latencies
from penstock.demo.logs import WorkerLogs
from penstock.demo.plan import DROPS, Plan, shuffled
from penstock.demo.promises import Promise, judge
from penstock.demo.screen import picture, spark
from penstock.demo.show import Sample, Show
from penstock.demo.tokens import Mint
from penstock.kernel.errors import PenstockError
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values

SECRET = "a secret of forty bytes, for this test only"

ALICE, BOB = Promise("alice", "seat-1"), Promise("bob", "seat-2")


def test_kept_promises_are_clean() -> None:
    verdict = judge([ALICE, BOB, BOB], [BOB, ALICE], seats=2, wanted_each=1)
    assert verdict.is_clean
    assert (verdict.promised, verdict.tickets) == (2, 2)


@pytest.mark.parametrize(
    ("promises", "tickets", "counts"),
    [
        # one seat, two users told yes; the second has no ticket
        ([ALICE, Promise("bob", "seat-1")], [ALICE], (1, 1, 0)),
        # more seats promised than there are
        ([ALICE, BOB, Promise("carol", "seat-3")], [ALICE, BOB], (1, 1, 0)),
        # a ticket that nobody was told of
        ([ALICE, BOB], [ALICE, BOB, Promise("eve", "seat-3")], (1, 0, 0)),
        # told yes, no ticket
        ([ALICE, BOB], [ALICE], (0, 1, 0)),
        # the ticket is another's
        ([ALICE], [Promise("bob", "seat-1")], (0, 1, 0)),
        # two seats for one click
        ([ALICE, Promise("alice", "seat-2")], [ALICE, Promise("alice", "seat-2")], (0, 0, 1)),
    ],
)
def test_broken_promises_are_counted(
    promises: list[Promise], tickets: list[Promise], counts: tuple[int, int, int]
) -> None:
    verdict = judge(promises, tickets, seats=2, wanted_each=1)
    assert (verdict.oversold, verdict.lost, verdict.double) == counts
    assert not verdict.is_clean


@pytest.mark.parametrize(("slots", "buyers"), [(1000, 50_000), (5, 5), (103, 2_001)])
def test_drops_share_out_every_seat_and_every_buyer_once(slots: int, buyers: int) -> None:
    drops = Plan(slots, buyers).drops()
    assert len(drops) == DROPS
    assert sum(drop.seats for drop in drops) == slots
    coming = [n for drop in drops for n in range(drop.first_buyer, drop.first_buyer + drop.buyers)]
    assert coming == list(range(buyers))


def test_the_seed_decides_the_order() -> None:
    assert shuffled(10, 50, 7) == shuffled(10, 50, 7)
    assert shuffled(10, 50, 7) != shuffled(10, 50, 8)
    assert sorted(shuffled(10, 50, 7)) == list(range(10, 60))


def test_latencies_are_exact_to_half_a_millisecond() -> None:
    latencies = Latencies()
    for number in range(1, 101):
        latencies.add(number / 1000 - 0.0001)
    assert latencies.at(0.50) == pytest.approx(50.0)
    assert latencies.at(0.99) == pytest.approx(99.0)
    assert Latencies().at(0.5) == 0.0


async def test_tokens_are_real_and_forged_ones_are_not_taken() -> None:
    auth = Authenticator(with_values(Settings(), jwt_secret=Secret(SECRET)))
    token = Mint(SECRET).token("buyer-1").decode()
    principal = await auth.principal({"authorization": f"Bearer {token}"})
    assert (principal.role, principal.subject) == (Role.USER, "buyer-1")
    forged = Mint(SECRET[::-1]).token("buyer-1").decode()
    with pytest.raises(PenstockError):
        await auth.principal({"authorization": f"Bearer {forged}"})


async def test_the_client_reads_answers_in_pieces_and_asks_again_when_cut_off() -> None:
    served = 0

    handlers: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        handlers.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                served += 1
                if served == 2:
                    break  # the answer to the second request is lost
                for piece in (b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 4\r\n\r\nnu", b"ll"):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    waiting = [Request(number, b"GET / HTTP/1.1\r\n\r\n") for number in range(3)]
    answered: list[tuple[int, int, bytes]] = []
    over = asyncio.Event()

    def take() -> Request | None:
        return waiting.pop(0) if waiting else None

    def answer(request: Request, status: int, body: bytes) -> None:
        answered.append((request.buyer, status, body))
        if len(answered) == 3:
            over.set()

    lines = Lines(port, 1, take=take, answered=answer)
    async with server:
        await lines.open(waiting.append)
        async with asyncio.timeout(10):
            await over.wait()
        lines.close()
        await asyncio.gather(*filter(None, handlers), return_exceptions=True)
    assert sorted(answered) == [(number, 200, b"null") for number in range(3)]
    assert served == 4


def test_worker_logs_are_read_as_they_grow(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.touch()
    logs = WorkerLogs()
    logs.watch(log)

    def write(**entry: object) -> None:
        with log.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")

    write(event="claimed", count=3)
    write(event="reservation_confirmed", reservation_id="a", attempt=1)
    with log.open("a") as stream:
        stream.write('{"event": "reservation_confirmed", "reserv')
    logs.read()
    assert logs.held_by(log) == 2
    with log.open("a") as stream:
        stream.write('ation_id": "b", "attempt": 2}\nnot json\n')
    write(event="reservation_confirmed", reservation_id="b", attempt=1)
    logs.read()
    assert logs.held_by(log) == 0
    assert logs.figures() == {"stale": 1, "redelivered": 1}


def test_sparks_follow_the_values() -> None:
    assert spark([]) == ""
    assert spark([0, 0]) == "▁▁"
    assert spark([0, 4, 8]) == "▁▄█" or spark([0, 4, 8]) == "▁▅█"


@pytest.mark.parametrize("width", [120, 100, 80])
def test_the_picture_fits_the_screen(width: int) -> None:
    show = Show(Plan())
    show.sample = Sample(1000, 0, 212, 788, 212)
    show.crowd = {"requests": 31_204, "yes": 1000, "sold_out": 30_204, "p50_ms": 28, "p99_ms": 95}
    fault = show.announce("kill -9 worker 4194304")
    fault.state, fault.outcome = "done", "its 200 back in 12.9 s, 0 lost"
    show.announce("ledger database stopped")
    show.proof = ["oversold 0   lost 0   double 0"]
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(picture(show, width))
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    assert any("1,000/1,000" in line for line in lines)
    assert "seats" in lines[0], "left out from the end, and not cut"
    assert lines[0].rstrip().endswith("/ ~00:50")
    assert "…" not in lines[0]
    assert any("next: ledger database stopped" in line for line in lines)
    if width == 120:
        assert any("its 200 back in 12.9 s, 0 lost" in line for line in lines)
