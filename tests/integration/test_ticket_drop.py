"""The curl script of examples/ticket_drop against a real server over two databases."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.test_cli_worker import answers, free_port
from tests.support.database import cloned
from tests.support.ledger import ledger_template as make_ledger_template
from tests.support.programs import running

from penstock.postgres import Cluster

SCRIPT = Path(__file__).parents[2] / "examples" / "ticket_drop" / "run.sh"
KEY = "service-key-of-this-test-0123456789abcdef"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def ledger_template(cluster: Cluster) -> str:
    return make_ledger_template(cluster)


@pytest.fixture
def ledger_url(cluster: Cluster, ledger_template: str) -> Iterator[str]:
    with cloned(cluster, ledger_template) as url:
        yield url


@pytest.fixture
def server(database_url: str, ledger_url: str, tmp_path: Path) -> Iterator[str]:
    """A server over both databases, with one slot on sale."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("select intake_seed_demo('demo_concert_2026', 1)")
    environ = {
        "PENSTOCK_DATABASE_URL": database_url,
        "PENSTOCK_LEDGER_URL": ledger_url,
        "DB1_SUPABASE_SERVICE_ROLE_KEY": KEY,
    }
    port = free_port()
    with running(["serve", "--port", str(port)], tmp_path, environ) as program:
        program.until(lambda: answers(port, "/healthz") == 200, "the server", 60)
        yield f"http://127.0.0.1:{port}"


def run_script(server: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    shell = shutil.which("sh")
    assert shell is not None
    assert shutil.which("curl") is not None, "the example needs curl"
    return subprocess.run(
        [shell, str(SCRIPT)],
        env={
            **os.environ,
            "DB1_SUPABASE_URL": server,
            "DB1_SUPABASE_SERVICE_ROLE_KEY": KEY,
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_ticket_is_bought_step_by_step(server: str, ledger_url: str, database_url: str) -> None:
    ran = run_script(server)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seat = ran.stdout.splitlines()[-1].split()[1]
    with psycopg.connect(ledger_url) as conn:
        rows = conn.execute("select resource_id::text, user_id from confirmed_tickets").fetchall()
    assert rows == [(seat, "user_42")]
    with psycopg.connect(database_url) as conn:
        statuses = conn.execute("select status::text from inventory_slots").fetchall()
    assert statuses == [("CONSUMED",)]
    late = run_script(server, TICKET_USER="user_43")
    assert late.returncode == 1
    assert "sold out" in late.stderr


def test_a_wrong_key_buys_nothing(server: str) -> None:
    ran = run_script(server, DB1_SUPABASE_SERVICE_ROLE_KEY="not-the-key")
    assert ran.returncode != 0
    assert "sold" not in ran.stdout
