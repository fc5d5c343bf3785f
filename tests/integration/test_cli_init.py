"""What `penstock init` writes works as it is."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli import make_cli


def test_the_example_that_init_writes_passes_its_own_test(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert make_cli(capsys)("init", str(tmp_path / "shop")).code == 0
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "shop",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
