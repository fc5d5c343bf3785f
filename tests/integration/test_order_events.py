"""The tutorial of order events: its files, run as it says, with real processes."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.brokers import NatsNode, free_port, nats_server
from tests.support.programs import running

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "order_events"
PAGE = ROOT / "docs" / "tutorials" / "order-events.md"
FILE = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
ADA = "1 ada 9.90"
GRACE = "3 grace 20.00"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Terminal:
    """The second terminal of the page: runs commands, keeps the receiver in the background."""

    def __init__(self, directory: Path, environ: dict[str, str], port: int) -> None:
        self._environ = {**os.environ, **environ}
        self._port = port
        self._printed = directory / "receiver.log"
        self._receiver: subprocess.Popen[bytes] | None = None

    def run(self, *command: str) -> str:
        """Run a program of the example, or `penstock …`; what it printed, whatever its end."""
        words = ["-m", *command] if command[0] == "penstock" else command
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=EXAMPLE,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ran.stdout + ran.stderr

    def receive(self) -> None:
        """`python receiver.py PORT &`."""
        with self._printed.open("ab") as log:
            self._receiver = subprocess.Popen(
                [sys.executable, "receiver.py", str(self._port)],
                cwd=EXAMPLE,
                env=self._environ,
                stdout=log,
                stderr=log,
            )

    def leave(self) -> None:
        """`kill %2`."""
        if self._receiver is not None:
            self._receiver.send_signal(signal.SIGTERM)
            self._receiver.wait(10)
            self._receiver = None

    def received(self) -> list[str]:
        """The lines that the receiver has printed."""
        return self._printed.read_text().splitlines()


def until(condition: Callable[[], object], what: str, *, within_s: float = 30.0) -> None:
    """Return when the condition holds; fail when the time is up."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)


@contextmanager
def second_terminal(directory: Path, environ: dict[str, str], port: int) -> Iterator[Terminal]:
    terminal = Terminal(directory, environ, port)
    try:
        yield terminal
    finally:
        terminal.leave()


def at_free_ports(node: NatsNode, port: int) -> str:
    """The file of destinations, with this test's ports instead of the usual ones."""
    text = (EXAMPLE / "destinations.toml").read_text("utf-8")
    assert "127.0.0.1:8500" in text
    assert "nats://127.0.0.1:4222" in text
    return text.replace("127.0.0.1:8500", f"127.0.0.1:{port}").replace(
        "nats://127.0.0.1:4222", node.url
    )


def test_the_page_shows_the_files_as_they_are() -> None:
    shown = dict(FILE.findall(PAGE.read_text("utf-8")))
    assert set(shown) == {"shop.py", "receiver.py", "destinations.toml"}
    for name, text in shown.items():
        assert text == (EXAMPLE / name).read_text("utf-8"), name


def test_orders_arrive_exactly_if_they_were_committed_also_after_an_outage(
    database_url: str, tmp_path: Path
) -> None:
    port = free_port()
    with nats_server(tmp_path) as node:
        environ = {
            "PENSTOCK_DATABASE_URL": database_url,
            "PENSTOCK_HTTP_ALLOW_PRIVATE": "127.0.0.1",
            "WEBHOOK_SECRET": SECRET,
            "NATS_URL": node.url,
        }
        (tmp_path / "destinations.toml").write_text(at_free_ports(node, port))
        apply = ["apply", str(tmp_path / "destinations.toml"), "--reason", "tutorial", "--yes"]
        with second_terminal(tmp_path, environ, port) as terminal:
            until(lambda: not terminal.run("stream.py", "make"), "the stream is made")
            terminal.receive()
            assert "audit" in terminal.run("penstock", *apply)
            with running(["dev", "--port", "0"], tmp_path, environ) as worker:
                _place_orders(terminal)
                assert worker.stop() == 0, worker.output


def _place_orders(terminal: Terminal) -> None:
    assert terminal.run("shop.py", "ada", "9.90") == "placed order 1\n"
    until(lambda: terminal.received() == [f"new {ADA}"], "the first order is received")
    assert "undone" in terminal.run("shop.py", "nobody", "1.00")
    terminal.leave()
    assert terminal.run("shop.py", "grace", "20.00") == "placed order 3\n"
    until(
        lambda: (
            terminal.run("stream.py", "read") == f"orders.placed {ADA}\norders.placed {GRACE}\n"
        ),
        "the stream has both orders and no other",
    )
    assert "webhook" in terminal.run("penstock", "destination", "list")
    terminal.receive()
    until(
        lambda: terminal.received() == [f"new {ADA}", f"new {GRACE}"],
        "the second order is received after the outage",
    )
