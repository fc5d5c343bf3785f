"""The demo as a user runs it: real processes, every fault, and nothing left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import is_alive, running, until_gone

SLOTS, BUYERS = 100, 2000
# Neither exists: a demo that looked at them would fail.
ELSEWHERE = {
    "PENSTOCK_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/elsewhere",
    "PENSTOCK_LEDGER_URL": "postgresql://nobody@127.0.0.1:1/elsewhere",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/elsewhere",
    "PGHOST": "127.0.0.1",
    "PGPORT": "1",
}
KEYS = ["slots", "buyers", "claimed", "confirmed", "oversold", "lost", "double", "claims_per_s"]
KEYS += ["p50_ms", "p99_ms", "faults", "refused", "control", "machine", "proof"]
SMALL = ("--slots", str(SLOTS), "--buyers", str(BUYERS))

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def ran() -> "subprocess.CompletedProcess[str]":
    """One small demo with every fault, as `--json` prints it."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", "demo", "--json", *SMALL],
        env={**os.environ, **ELSEWHERE},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.fixture(scope="module")
def document(ran: "subprocess.CompletedProcess[str]") -> Any:
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_it_sells_out_and_proves_it(document: Any) -> None:
    assert list(document) == KEYS
    assert document["proof"] == "ok"
    assert (document["slots"], document["buyers"]) == (SLOTS, BUYERS)
    assert document["claimed"] == document["confirmed"] == SLOTS
    assert (document["oversold"], document["lost"], document["double"]) == (0, 0, 0)
    assert document["claims_per_s"] > 0
    assert 0 < document["p50_ms"] <= document["p99_ms"]


@pytest.mark.parametrize(
    "named",
    [
        "kill -9 worker",
        "ledger database stopped",
        "ledger database back",
        "frozen",
        "double-clicks",
        "kill -9 engine Postgres",
        "asks again",
    ],
)
def test_every_fault_happened_and_had_an_outcome(document: Any, named: str) -> None:
    found = [fault for fault in document["faults"] if named in fault["fault"]]
    assert len(found) == 1
    assert found[0]["ok"] is True
    assert found[0]["outcome"]


def test_what_was_attempted_was_refused(document: Any) -> None:
    refused = document["refused"]
    # Everybody with a seat of the fourth drop clicked twice, and all asked again in the end.
    assert refused["double_clicks"] == SLOTS + SLOTS // 5
    assert refused["forged_tokens"] == 5
    assert refused["redelivered"] > 0
    assert refused["stale_finishes"] > 0


def test_the_first_design_breaks_under_the_same_faults(document: Any) -> None:
    control = document["control"]
    assert control["oversold"] > 0
    assert control["lost"] > 0
    assert control["double"] > 0


def test_progress_goes_to_the_other_stream(ran: "subprocess.CompletedProcess[str]") -> None:
    assert "next: kill -9 a worker mid-commit" in ran.stderr
    assert "control run" in ran.stderr


def descendants(pid: int) -> Iterator[int]:
    """Every process below one."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    with running(["demo", *SMALL], tmp_path, ELSEWHERE) as program:
        program.until(lambda: "ledger database stopped" in program.output, "the sale", 120)
        below = list(descendants(program.process.pid))
        places = {Path(f"/proc/{pid}/cwd").readlink() for pid in below}
        ours = [place for place in places if "penstock-" in str(place)]
        assert len(below) >= 5
        assert ours
        assert program.stop(signal.SIGINT, 60) == 130
    until_gone(below)
    assert not [pid for pid in below if is_alive(pid)]
    assert not [place for place in ours if place.exists()]


def test_a_crowd_in_a_burst_notices_that_the_demo_is_gone_and_ends_the_server() -> None:
    """As after `kill -9`: both pipes close, and the burst would never end."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as server,
        subprocess.Popen(
            [sys.executable, "-m", "penstock.demo.crowd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as crowd,
    ):
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        told = {
            "port": silent.getsockname()[1],
            "pool": "p",
            "secret": "s" * 32,
            "forged_secret": "f" * 32,
            "seed": 1,
            "connections": 1,
            "server_pid": server.pid,
        }
        burst = {"kind": "burst", "first": 0, "count": 1, "forged": 0, "clicks": 1}
        crowd.stdin.write(json.dumps(told).encode() + b"\n")
        crowd.stdin.write(json.dumps({**burst, "measured": True}).encode() + b"\n")
        crowd.stdin.flush()
        assert json.loads(crowd.stdout.readline())
        crowd.stdout.close()
        with suppress(BrokenPipeError):
            crowd.stdin.close()
        try:
            crowd.wait(10)
            assert server.wait(10) == -signal.SIGTERM
        finally:
            crowd.kill()
            server.kill()


def test_a_sale_without_enough_buyers_is_refused() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", "demo", "--slots", "50", "--buyers", "10"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert "as many buyers as seats" in ran.stderr
