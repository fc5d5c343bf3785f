"""`work`, `run`, `serve` and `dev` as real processes, stopped by real signals."""

import json
import os
import signal
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.cli import make_cli
from tests.support.programs import Program, is_alive, running, until_gone

APP = """
import asyncio
import os
from dataclasses import dataclass
from penstock import Event, Penstock, Tx

ps = Penstock.from_env()


@dataclass
class Job:
    number: int


jobs = ps.outbox.topic("jobs", Job)
slow = ps.outbox.topic("slow", Job)


@jobs.on()
async def handler(event: Event[Job], tx: Tx) -> None:
    await tx.execute("insert into effects values ($1, $2)", event.data.number, os.getpid())


@slow.on()
async def sleeper(event: Event[Job], tx: Tx) -> None:
    print("sleeping", flush=True)
    await asyncio.sleep(event.data.number / 1000)
    await tx.execute("insert into effects values ($1, $2)", event.data.number, os.getpid())
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def environ(database_url: str) -> dict[str, str]:
    return {"PENSTOCK_DATABASE_URL": database_url}


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table effects (number int, pid int)")
        yield conn


def publish(sql: Any, topic: str, *numbers: int) -> None:
    for number in numbers:
        sql.execute("select app.outbox_publish(null, %s, %s)", [topic, f'{{"number": {number}}}'])


def effects(sql: Any) -> list[int]:
    return [row[0] for row in sql.execute("select number from effects order by 1").fetchall()]


def states(sql: Any) -> dict[str, int]:
    return dict(sql.execute("select state, count(*) from app.outbox_all group by 1").fetchall())


def test_work_handles_until_it_is_told_to_stop(app: Path, environ: Any, sql: Any) -> None:
    publish(sql, "jobs", 1, 2)
    with running(["work", "--app", "app:ps"], app, environ) as program:
        program.until(lambda: effects(sql) == [1, 2], "both effects")
        publish(sql, "jobs", 3)
        program.until(lambda: effects(sql) == [1, 2, 3], "the third effect")
        assert program.stop() == 0
    assert '"worker_stopped"' in program.output
    assert "3 finished" in program.output


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_running_handlers_end(
    app: Path, environ: Any, sql: Any, how: signal.Signals
) -> None:
    publish(sql, "slow", 1500)
    with running(["work", "--app", "app:ps"], app, environ) as program:
        program.until(lambda: "sleeping" in program.output, "a running handler")
        assert program.stop(how) == 0
    assert effects(sql) == [1500]
    assert states(sql) == {"DELIVERED": 1}


def test_what_does_not_end_within_the_drain_is_given_back(
    app: Path, environ: Any, sql: Any
) -> None:
    publish(sql, "slow", 60_000)
    arguments = ["work", "--app", "app:ps", "--drain-s", "0.2"]
    with running(arguments, app, environ) as program:
        program.until(lambda: "sleeping" in program.output, "a running handler")
        assert program.stop() == 0
    assert states(sql) == {"READY": 1}
    assert sql.execute("select attempts from public.outbox").fetchone() == (0,)


def test_a_stop_that_comes_before_the_work_ends_it_quietly(
    app: Path, environ: Any, sql: Any
) -> None:
    """The application waits for a lock while it is opened; the signal finds nothing to drain."""
    with sql.transaction():
        sql.execute("lock table penstock.migration in access exclusive mode")
        with running(["work", "--app", "app:ps"], app, environ) as program:
            program.until(lambda: _waits_for_lock(sql), "the start")
            assert program.stop() == 0, program.output
    assert "Traceback" not in program.output


def _waits_for_lock(sql: Any) -> bool:
    query = "select count(*) from pg_locks where not granted"
    return bool(sql.execute(query).fetchone()[0])


def test_processes_are_restarted_when_killed_and_stopped_together(
    app: Path, environ: Any, sql: Any
) -> None:
    with running(["work", "--app", "app:ps", "--processes", "2"], app, environ) as program:
        program.until(lambda: program.output.count('"worker_started"') == 2, "two workers")
        first, second = program.children()
        os.kill(first, signal.SIGKILL)
        program.until(lambda: program.output.count('"worker_started"') == 3, "a third worker")
        publish(sql, "jobs", *range(50))
        program.until(lambda: effects(sql) == list(range(50)), "all effects")
        children = program.children()
        assert second in children
        assert program.stop() == 0
    assert not [pid for pid in children if is_alive(pid)]


def test_workers_stop_when_their_parent_is_killed(app: Path, environ: Any, sql: Any) -> None:
    with running(["work", "--app", "app:ps", "--processes", "2"], app, environ) as program:
        program.until(lambda: program.output.count('"worker_started"') == 2, "two workers")
        children = program.children()
        program.stop(signal.SIGKILL)
    until_gone(children)


def test_the_address_of_the_database_is_on_no_command_line(
    app: Path, database_url: str, sql: Any
) -> None:
    arguments = ["work", "--app", "app:ps", "--processes", "2"]
    with running(arguments, app, {"PENSTOCK_DATABASE_URL": database_url}) as program:
        program.until(lambda: program.output.count('"worker_started"') == 2, "two workers")
        for pid in program.children():
            assert database_url not in Path(f"/proc/{pid}/cmdline").read_text()
        assert program.stop() == 0


def test_run_once_reports_what_it_did(app: Path, environ: Any, sql: Any) -> None:
    publish(sql, "jobs", *range(5))
    with running(["run", "outbox", "--once", "--app", "app:ps", "--json"], app, environ) as program:
        assert program.process.wait(20) == 0
    document = json.loads(program.output[program.output.index("{\n") :])
    assert document["finished"] == 5
    publish(sql, "jobs", *range(5))
    limited = ["run", "outbox", "--once", "--limit", "2", "--app", "app:ps", "--json"]
    with running(limited, app, environ) as program:
        assert program.process.wait(20) == 0
    assert states(sql) == {"DELIVERED": 7, "READY": 3}
    with running(["run", "outbox", "--once", "--app", "app:ps"], app, environ) as program:
        assert program.process.wait(20) == 0
    assert "Delivered 3 of 3 events" in program.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "outbox", "--app", "app:ps"], 2, "--once"),
        (["work", "--app", "nothere:ps"], 2, "no module nothere"),
        (["work", "--app", "app:missing"], 2, "no Penstock object named missing"),
        (["work", "--only", "outbox"], 2, "no handler is registered"),
        (["work", "--app", "app:ps", "--only", "letters"], 1, "no queue named letters"),
    ],
)
def test_wrong_usage_is_said_plainly(
    app: Path, environ: Any, arguments: list[str], code: int, said: str
) -> None:
    with running(arguments, app, environ) as program:
        assert program.process.wait(20) == code, program.output
    assert said in program.output


def test_without_a_database_nothing_starts_one(
    app: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(app)
    ran = make_cli(capsys)("serve")
    assert ran.code != 0
    assert "PN002" in ran.err


def test_an_empty_database_is_a_schema_error(app: Path, empty_url: str) -> None:
    with running(["work", "--app", "app:ps"], app, {"PENSTOCK_DATABASE_URL": empty_url}) as program:
        assert program.process.wait(20) == 4, program.output
    assert "penstock migrate" in program.output


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_serve_with_workers_serves_and_works(app: Path, environ: Any, sql: Any) -> None:
    port = free_port()
    arguments = ["serve", "--with-workers", "--app", "app:ps", "--port", str(port)]
    with running(arguments, app, environ) as program:
        program.until(lambda: answers(port, "/readyz") == 200, "ready")
        publish(sql, "jobs", 1)
        program.until(lambda: effects(sql) == [1], "the effect")
        assert answers(port, "/metrics") == 200
        assert program.stop() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port"],
        ["dev", "--app", "app:ps", "--port"],
        ["work", "--app", "app:ps", "--health-port"],
    ],
)
def test_a_port_in_use_is_named_before_anything_is_promised(
    app: Path, environ: Any, arguments: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with running([*arguments, port], app, environ) as program:
            assert program.process.wait(20) == 2, program.output
    assert f"port {port} of 127.0.0.1 is in use" in program.output
    assert arguments[-1] in program.output.partition("what to do")[2]
    assert "PN001" in program.output
    assert "serving on" not in program.output
    assert "Traceback" not in program.output


def test_serve_says_which_port_was_free(app: Path, environ: Any) -> None:
    with running(["serve", "--port", "0"], app, environ) as program:
        said = "serving on http://127.0.0.1:"
        program.until(lambda: said in program.output, "the address")
        port = int(program.output.partition(said)[2].split()[0])
        program.until(lambda: answers(port, "/healthz") == 200, "an answer")
        assert program.stop() == 0


def test_a_worker_tells_its_health(app: Path, environ: Any, sql: Any) -> None:
    port = free_port()
    arguments = ["work", "--app", "app:ps", "--health-port", str(port)]
    with running(arguments, app, environ) as program:
        program.until(lambda: answers(port, "/readyz") == 200, "ready")
        assert answers(port, "/healthz") == 200
        assert program.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_dev_brings_its_own_database_and_takes_it_away(app: Path) -> None:
    port = free_port()
    # The server may run under another account, which cannot enter pytest's directories.
    with tempfile.TemporaryDirectory() as state:
        Path(state).chmod(0o755)
        environ = {"PENSTOCK_STATE_DIR": state, "PENSTOCK_DATABASE_URL": ""}
        arguments = ["dev", "--app", "app:ps", "--port", str(port)]
        with running(arguments, app, environ) as program:
            program.until(lambda: answers(port, "/readyz") == 200, "ready", 60)
            url = _engine(program)
            assert f"to begin anew: rm -r {state}" in program.output
            with psycopg.connect(url, autocommit=True) as sql:
                sql.execute("create table effects (number int, pid int)")
                publish(sql, "jobs", 1)
                program.until(lambda: effects(sql) == [1], "the effect")
            assert program.stop(within_s=30) == 0
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_dev_starts_again_when_the_source_changes(app: Path, environ: Any, sql: Any) -> None:
    port = free_port()
    arguments = ["dev", "--reload", "--app", "app:ps", "--port", str(port)]
    with running(arguments, app, environ) as program:
        program.until(lambda: answers(port, "/readyz") == 200, "ready", 60)
        (app / "app.py").write_text(APP + '\nprint("second edition", flush=True)\n')
        program.until(lambda: "second edition" in program.output, "the new source", 30)
        program.until(lambda: answers(port, "/readyz") == 200, "ready again", 30)
        children = program.children()
        assert program.stop() == 0
    until_gone(children)


def _engine(program: Program) -> str:
    return next(line.split()[1] for line in program.output.splitlines() if "engine" in line)
