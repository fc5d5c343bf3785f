"""The projects db1 and db2 agree with the package, with each other and with .env.example."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.sources import ROOT

DB1, DB2 = (ROOT / name / "supabase" for name in ("db1", "db2"))


def tool() -> ModuleType:
    path = ROOT / "tools" / "supabase_trees.py"
    spec = importlib.util.spec_from_file_location("supabase_trees", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_migrations_are_what_the_package_says() -> None:
    rendered = dict(tool().rendered())
    assert len(rendered) == 3
    stale = [str(name) for name, text in rendered.items() if (ROOT / name).read_text() != text]
    assert stale == [], "run `make fmt`"


def test_the_migrations_are_the_four_and_in_order() -> None:
    names = [path.stem for tree in (DB1, DB2) for path in sorted((tree / "migrations").iterdir())]
    assert names == [
        "20260224100000_intake_engine_setup",
        "20260224100001_intake_engine_functions",
        "20260224100002_intake_engine_cron",
        "20260224100000_db2_ledger",
    ]


def config(tree: Path) -> dict[str, Any]:
    return tomllib.loads((tree / "config.toml").read_text("utf-8"))


@pytest.mark.parametrize(("part", "port"), [("api", 54321), ("db", 54322), ("studio", 54323)])
def test_the_second_project_stands_beside_the_first(part: str, port: int) -> None:
    assert (config(DB1)[part]["port"], config(DB2)[part]["port"]) == (port, port + 100)


def test_no_port_is_given_twice() -> None:
    text = "".join((tree / "config.toml").read_text("utf-8") for tree in (DB1, DB2))
    ports = re.findall(r"port = (\d+)", text)
    assert len(ports) == len(set(ports)) == 10


def test_the_example_environment_has_both_projects() -> None:
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if re.match(r"DB\d_", line))
    expected: dict[str, str] = {}
    for number, port in ((1, 54321), (2, 54421)):
        key = f"<from db{number} supabase status>"
        expected |= {
            f"DB{number}_SUPABASE_URL": f"http://127.0.0.1:{port}",
            f"DB{number}_SUPABASE_ANON_KEY": key,
            f"DB{number}_SUPABASE_SERVICE_ROLE_KEY": key,
        }
    assert given == expected


def test_no_schedule_holds_a_secret_or_reads_one_from_a_setting() -> None:
    text = (DB1 / "migrations" / "20260224100002_intake_engine_cron.sql").read_text("utf-8")
    jobs = re.findall(r"cron\.schedule\('(\w+)', '([^']+)'", text)
    assert dict(jobs) == {
        "metrics_snapshot": "* * * * *",
        "reap_orphaned_slots": "*/2 * * * *",
        "drain_queue_trigger": "* * * * *",
    }
    assert "current_setting" not in text
    assert "vault.decrypted_secrets" in text
