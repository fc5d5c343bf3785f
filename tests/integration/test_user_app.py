"""The package as a user has it: a built wheel, an application in a folder of its own."""

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.integration.test_cli_worker import answers, free_port
from tests.support.programs import Program, running

ROOT = Path(__file__).parents[2]
NUMBERS = list(range(25))
KINDS = ("paid", "shipped", "invoiced", "counted")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the built wheel installed in it; dependencies come from this environment."""
    work = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work)], ROOT)
    (wheel,) = work.glob("*.whl")
    target = work / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    _run([*pip, "--target", str(target), str(wheel)], work)
    return target


@pytest.fixture
def app(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "shop", tmp_path / "app")
    return tmp_path / "app"


@pytest.fixture
def environ(installed: Path, app: Path, database_url: str) -> dict[str, str]:
    parts = urlsplit(database_url)
    place = {name: values[0] for name, values in parse_qs(parts.query).items()}
    query = f"host={place['host']}&port={place.get('port', '5432')}"
    return {
        "PYTHONPATH": os.pathsep.join([str(installed), str(app)]),
        "PENSTOCK_DATABASE_URL": database_url,
        "SHOP_ENGINE_URL": f"postgresql+asyncpg://postgres@/{parts.path[1:]}?{query}",
    }


@pytest.fixture
def sql(database_url: str) -> Iterator[Any]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table effects (kind text, number int)")
        yield conn


def _run(
    command: Sequence[str], directory: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def publish(sql: Any) -> None:
    for number in NUMBERS:
        payload = f'{{"number": {number}, "amount": "1.00"}}'
        sql.execute("select app.outbox_publish(null, 'orders.paid', %s)", [payload])


def everything_happened(sql: Any) -> bool:
    rows = sql.execute("select kind, array_agg(number order by number) from effects group by 1")
    return dict(rows.fetchall()) == dict.fromkeys(KINDS, NUMBERS)


def test_the_installed_package_is_the_one_that_is_used(
    installed: Path, app: Path, environ: dict[str, str]
) -> None:
    ran = _run([sys.executable, "-c", "import penstock; print(penstock.__file__)"], app, environ)
    assert ran.stdout.startswith(str(installed))
    assert (installed / "penstock" / "outbox" / "sql" / "tables.sql").is_file()
    assert (installed / "penstock" / "py.typed").is_file()


def test_the_worker_runs_handlers_of_every_kind(
    app: Path, environ: dict[str, str], sql: Any
) -> None:
    publish(sql)
    with running(["work", "--app", "shop.events:ps"], app, environ) as program:
        program.until(lambda: everything_happened(sql), "every effect", 30)
        program.until(lambda: _mails(program) == NUMBERS, "every mail")
        assert program.stop() == 0
    states = sql.execute("select distinct state from app.outbox_all").fetchall()
    assert states == [("DELIVERED",)]


def _mails(program: Program) -> list[int]:
    lines = program.output.splitlines()
    return sorted(int(line.split()[1]) for line in lines if line.startswith("mailed "))


def test_the_applications_own_tests_pass_with_our_fixtures(
    app: Path, environ: dict[str, str]
) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests",
    ]
    ran = _run(command, app, environ)
    assert "3 passed" in ran.stdout


def test_a_suite_that_uses_nothing_of_ours_loads_nothing_of_ours(
    tmp_path: Path, installed: Path
) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_nothing():\n"
        "    ours = {name for name in sys.modules if name.split('.')[0] == 'penstock'}\n"
        "    assert ours <= {'penstock', 'penstock.testing', 'penstock.testing.plugin'}\n"
        "    assert 'asyncpg' not in sys.modules\n"
    )
    # Without its own plugin pytest-asyncio does not warn about its own settings.
    pytest_command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:asyncio"]
    command = [*pytest_command, "-p", "no:cacheprovider"]
    ran = _run(command, tmp_path, {"PYTHONPATH": str(installed)})
    assert "1 passed" in ran.stdout


def test_it_is_mounted_in_fastapi_and_works_there(
    app: Path, environ: dict[str, str], sql: Any
) -> None:
    port = free_port()
    with _uvicorn("shop.web:app", port, app, environ) as program:
        program.until(lambda: answers(port, "/penstock/readyz") == 200, "ready")
        for number in NUMBERS:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/orders/{number}", method="POST"
            )
            with urllib.request.urlopen(request, timeout=5) as answer:
                assert answer.status == 200
        program.until(lambda: everything_happened(sql), "every effect", 30)
        program.stop(signal.SIGTERM)


def test_a_mount_without_lifespan_says_what_is_missing(
    app: Path, environ: dict[str, str], sql: Any
) -> None:
    port = free_port()
    with _uvicorn("shop.web:forgetful", port, app, environ) as program:
        program.until(lambda: answers(port, "/penstock/readyz") == 503, "an answer")
        program.until(lambda: "lifespan=ps.lifespan()" in program.output, "the log line")
        program.stop(signal.SIGTERM)


def _uvicorn(target: str, port: int, app: Path, environ: dict[str, str]) -> Any:
    return running([target, "--port", str(port)], app, environ, module="uvicorn")
