"""Root and ordinary users: who runs the server, and that no permission is ever widened."""

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.kernel.errors import PostgresFailed
from penstock.postgres import Binaries, Cluster, clusters_dir, find_binaries, named_cluster
from penstock.postgres.account import server_account
from penstock.postgres.relocation import reachable_binaries

MakeCluster = Callable[..., Cluster]
SOURCE = Path(__file__).parents[2] / "src"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another account")
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="concerns ordinary users only")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def closed(place: Path) -> Path:
    """A directory of mode 0700 that belongs to us."""
    directory = place / "closed"
    directory.mkdir(mode=0o700)
    return directory


@as_root
def test_root_drops_to_an_unprivileged_account(make_cluster: MakeCluster) -> None:
    account = server_account()
    assert account.dropped
    assert account.name in ("postgres", "nobody")
    with make_cluster() as cluster:
        assert cluster.data_dir.stat().st_uid == account.uid
        assert mode(cluster.data_dir) == 0o700
        assert Path(f"/proc/{cluster.pid}").stat().st_uid == account.uid
        assert mode(cluster.data_dir.parent) == 0o755
        assert cluster.data_dir.parent.stat().st_uid == 0


@as_root
def test_a_closed_parent_is_reported_and_stays_closed(closed: Path) -> None:
    with pytest.raises(PostgresFailed, match=f"cannot enter {closed}"):
        Cluster("one", closed / "deep" / "one").start()
    assert mode(closed) == 0o700


@as_user
def test_a_closed_parent_serves_its_owner_and_stays_closed(closed: Path) -> None:
    with Cluster("one", closed / "one", durable=False) as cluster:
        assert cluster.is_running()
    assert mode(closed) == 0o700


def closed_copy(closed: Path) -> Binaries:
    """The preferred programs as they would lie in a virtual environment under a 0700 home."""
    found = find_binaries()
    install = found.bin_dir.parent
    if not (install / "share").is_dir():
        pytest.skip(f"{install} is not a relocatable installation")
    package = closed / install.parent.name
    shutil.copytree(install, package / install.name, symlinks=True)
    libraries = install.parent.with_name(f"{install.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    return replace(found, bin_dir=package / install.name / "bin")


@as_root
def test_unreachable_programs_are_copied_once_and_work(
    closed: Path, place: Path, make_cluster: MakeCluster
) -> None:
    hidden = closed_copy(closed)
    account = server_account()
    copies: list[Binaries] = []

    def copy() -> None:
        copies.append(reachable_binaries(hidden, account, cache_root=place / "cache"))

    threads = [threading.Thread(target=copy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({found.bin_dir for found in copies}) == 1
    assert len(copies) == 3
    assert [path.name.startswith("postgres-") for path in (place / "cache").iterdir()] == [True]
    assert not list((place / "cache").rglob("*.a"))
    assert mode(closed) == 0o700
    with make_cluster(binaries=copies[0]) as cluster:
        assert cluster.run("psql", "-X", "-Atc", "select 1") == "1\n"


@as_root
def test_a_cache_that_others_could_have_filled_is_refused(closed: Path, place: Path) -> None:
    hidden = closed_copy(closed)
    (place / "cache").mkdir()
    (place / "cache").chmod(0o777)
    with pytest.raises(PostgresFailed, match="cannot execute"):
        reachable_binaries(hidden, server_account(), cache_root=place / "cache")
    assert mode(place / "cache") == 0o777


@as_root
def test_the_owner_of_an_existing_cluster_runs_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster().start()
    cluster.stop()
    for path in (cluster.data_dir, *cluster.data_dir.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    with Cluster("one", cluster.data_dir, durable=False) as again:
        assert Path(f"/proc/{again.pid}").stat().st_uid == 65534


def interpreter_for_others() -> str:
    """A Python that other accounts can execute; ours may sit in a closed home directory."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            check = [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(check, user="nobody", check=False, cwd="/").returncode == 0:
                return candidate
        except OSError:
            continue
    pytest.skip("no Python >= 3.11 that the account 'nobody' can execute")


def copy_alone(target: Path) -> None:
    """Copy this package and the errors it raises: it must need no other module of the product."""
    shutil.copytree(SOURCE / "penstock" / "postgres", target / "postgres")
    (target / "kernel").mkdir()
    for name in ("__init__.py", "errors.py", "catalogue.py", "catalogue_products.py", "entry.py"):
        shutil.copy(SOURCE / "penstock" / "kernel" / name, target / "kernel" / name)
    (target / "__init__.py").touch()


@as_root
def test_an_ordinary_user_runs_a_cluster(place: Path) -> None:
    python = interpreter_for_others()
    found = reachable_binaries(find_binaries(), server_account())
    copy_alone(place / "source" / "penstock")
    home = place / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    program = (
        "from penstock.postgres import named_cluster, throwaway_cluster\n"
        "with named_cluster('engine') as c, throwaway_cluster() as t:\n"
        "    print(c.data_dir, c.run('psql', '-XAtc', 'select 1'), t.is_running(), sep='|')\n"
    )
    result = subprocess.run(
        [python, "-c", program],
        user="nobody",
        group=65534,
        extra_groups=[],
        cwd="/",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(place / "source"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PENSTOCK_POSTGRES_BIN": str(found.bin_dir),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.stderr == ""
    expected = home / ".local" / "state" / "penstock" / "clusters" / "engine"
    assert result.stdout == f"{expected}|1\n|True\n"


def test_the_state_variable_decides_where_named_clusters_live(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(place))
    with named_cluster("engine", durable=False) as engine:
        assert engine.data_dir == place / "clusters" / "engine"
        assert engine.is_running()
    with pytest.raises(PostgresFailed, match="no cluster name"):
        named_cluster("../ledger")


@as_root
def test_named_clusters_avoid_a_home_that_the_account_cannot_enter(closed: Path) -> None:
    chosen = clusters_dir({"HOME": str(closed)})
    assert not chosen.is_relative_to(closed)
    assert mode(closed) == 0o700
