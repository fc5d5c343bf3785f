"""`make projects`: both databases from nothing, their status, their SQL tests, a reset."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.test_cli_worker import free_port
from tests.support.pgtap import PGTAP
from tests.support.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Tool:
    """The tool with data and ports of the test's own."""

    def __init__(self, state: Path) -> None:
        self.options = ["--state", str(state), "--port", str(free_port())]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, str(ROOT / "tools" / "projects.py"), *arguments, *self.options],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def done(self, *arguments: str) -> list[str]:
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout.splitlines()


@pytest.fixture
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    state = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path_factory.getbasetemp()
    made = Tool(state / f"penstock-projects-{os.getpid()}")
    yield made
    made.run("stop")
    subprocess.run(["rm", "-rf", made.options[1]], check=True)


def test_start_status_reset_test_stop(tool: Tool) -> None:
    assert tool.run("status").returncode == 1
    started = tool.done("start")
    assert [line.split(":")[0] for line in started] == ["db1", "db2"]
    assert tool.done("status") == started
    engine, ledger = (line.split(": ")[1] for line in started)
    with psycopg.connect(engine) as conn:
        conn.execute("select claim_resource_and_queue('demo_concert_2026', 'user_42')")
    with psycopg.connect(ledger) as conn:
        assert conn.execute("select count(*) from confirmed_tickets").fetchone() == (0,)
    tool.done("start")
    assert free_slots(engine) == 999, "what runs is left alone"
    tool.done("reset", "db1")
    assert free_slots(engine) == 1000
    if PGTAP:
        assert len([line for line in tool.done("test") if line.startswith("db")]) == 4
        tool.done("test", "db2")
    tool.done("stop")
    assert tool.run("status").returncode == 1


def free_slots(url: str) -> int:
    with psycopg.connect(url) as conn:
        row = conn.execute("select count(*) from inventory_slots where status = 'AVAILABLE'")
        found: int = row.fetchall()[0][0]
    return found
