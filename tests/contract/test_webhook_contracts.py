"""The script that CI runs, on a database of the test's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "run_webhook_contracts.sh"


def run(directory: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK", "DATABASE"))}
    return subprocess.run(
        [str(SCRIPT), str(directory)],
        env={**clean, "PYTHON": sys.executable, **environ},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


@pytest.mark.slow
def test_the_contract_holds_and_leaves_its_artefacts(empty_url: str, tmp_path: Path) -> None:
    ran = run(tmp_path, DATABASE_URL=empty_url)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "Contract tests passed."
    kept = {path.name for path in tmp_path.iterdir()}
    assert {"webhook_events.json", "webhook_side_effects.json", "worker.log"} <= kept
    assert 'reason="max_attempts_exceeded"} 1' in (tmp_path / "metrics.txt").read_text()


def test_without_a_database_it_says_so(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2
