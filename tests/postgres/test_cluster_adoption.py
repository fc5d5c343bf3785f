"""Servers left running, files left behind: what is adopted, what is never touched."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.kernel.errors import PostgresFailed
from penstock.postgres import Cluster, postmaster
from penstock.postgres.account import AccountProcess, hand_over, server_account
from penstock.postgres.pidfile import pid_path, read_pid_file

MakeCluster = Callable[..., Cluster]
Bystander = Callable[..., AccountProcess]
SOURCE = Path(__file__).parents[2] / "src"


def query(cluster: Cluster, sql: str) -> str:
    return cluster.run("psql", "-X", "-At", "-c", sql)


def leave_pid_file(cluster: Cluster, lines: list[str]) -> None:
    path = pid_path(cluster.data_dir)
    path.write_text("\n".join(lines) + "\n")
    hand_over(path, server_account(cluster.data_dir))


def test_a_server_outlives_its_launcher_and_is_adopted(
    make_cluster: MakeCluster, place: Path
) -> None:
    program = (
        "import os, sys; from penstock.postgres import Cluster; "
        "c = Cluster('one', sys.argv[1], durable=False).start(); "
        "c.run('psql', '-c', 'create table kept (n int)'); print(c.pid, flush=True); os._exit(1)"
    )
    launcher = subprocess.run(
        [sys.executable, "-c", program, str(place / "one")],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        check=False,
        timeout=50,
    )
    cluster = make_cluster()
    assert cluster.pid == int(launcher.stdout)
    assert cluster.start().pid == int(launcher.stdout)
    assert query(cluster, "select count(*) from kept") == "0\n"
    socket_dir = cluster.address.socket_dir
    cluster.stop()
    assert not cluster.is_running()
    assert not socket_dir.exists()


def test_adoption_refuses_a_server_without_the_asked_port(
    make_cluster: MakeCluster, free_port: int
) -> None:
    with make_cluster() as running:
        with pytest.raises(PostgresFailed, match="already running"):
            make_cluster(port=free_port).start()
        assert running.is_running()


def test_a_server_whose_socket_was_removed_is_reported_and_can_be_stopped(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster().start()
    shutil.rmtree(cluster.address.socket_dir)
    other = make_cluster()
    with pytest.raises(PostgresFailed, match="socket is gone"):
        other.start()
    other.stop()
    assert not cluster.is_running()


def test_a_live_foreign_process_in_the_pid_file_survives_start_and_stop(
    make_cluster: MakeCluster, bystander: Bystander
) -> None:
    cluster = make_cluster().start()
    genuine = pid_path(cluster.data_dir).read_text().splitlines()
    cluster.stop()
    sleep = bystander()
    now = str(int(time.time()))
    for lines in (
        [str(sleep.pid)],
        [str(sleep.pid), *genuine[1:]],
        [str(sleep.pid), genuine[1], now, *genuine[3:]],
    ):
        leave_pid_file(cluster, lines)
        assert not cluster.is_running()
        assert cluster.kill() is None
        cluster.stop()
        assert cluster.start().pid != sleep.pid
        cluster.stop()
        assert sleep.poll() is None


@pytest.mark.parametrize("where", ["elsewhere", "in the data directory"])
def test_a_process_that_merely_looks_like_a_server_survives(
    make_cluster: MakeCluster, bystander: Bystander, place: Path, where: str
) -> None:
    cluster = make_cluster().start()
    cluster.stop()
    if where == "elsewhere":
        impostor = place / "postgres"
        shutil.copy("/bin/sleep", impostor)
        process = bystander(impostor, "120")
    else:
        process = bystander("/bin/sh", "-c", f"cd '{cluster.data_dir}' && exec sleep 120")
    leave_pid_file(
        cluster, [str(process.pid), str(cluster.data_dir), str(int(time.time())), "5432", "", ""]
    )
    assert not cluster.is_running()
    cluster.start()
    cluster.stop()
    assert process.poll() is None


@pytest.mark.parametrize("content", ["", "\n", "rubbish\nmore\n", "-77\n/x\n"])
def test_a_torn_pid_file_does_not_block_a_start(make_cluster: MakeCluster, content: str) -> None:
    cluster = make_cluster().start()
    cluster.stop()
    leave_pid_file(cluster, [content])
    assert not cluster.is_running()
    assert query(cluster.start(), "select 1") == "1\n"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see a zombie")
def test_a_zombie_counts_as_dead(make_cluster: MakeCluster, bystander: Bystander) -> None:
    cluster = make_cluster().start()
    genuine = pid_path(cluster.data_dir).read_text().splitlines()
    cluster.stop()
    zombie = bystander("/bin/true")
    state = Path(f"/proc/{zombie.pid}/stat")
    deadline = time.monotonic() + 10
    while state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
    leave_pid_file(cluster, [str(zombie.pid), *genuine[1:]])
    assert not cluster.is_running()
    assert query(cluster.start(), "select 1") == "1\n"


def test_without_proc_the_server_itself_is_asked(
    make_cluster: MakeCluster,
    bystander: Bystander,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postmaster, "_PROC", place / "absent")
    cluster = make_cluster().start()
    assert make_cluster().start().pid == cluster.pid
    cluster.stop()
    assert not cluster.is_running()
    sleep = bystander()
    leave_pid_file(cluster, [str(sleep.pid), str(cluster.data_dir), "0", "5432", str(place), "*"])
    assert not cluster.is_running()
    cluster.start()
    cluster.stop()
    assert sleep.poll() is None


def test_a_stepped_clock_does_not_hide_a_running_server(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_cluster() as cluster:
        monkeypatch.setattr(postmaster, "_started_at_s", lambda _fields: 0.0)
        assert make_cluster().start().pid == cluster.pid


def test_a_hidden_process_that_does_not_answer_blocks_a_start_and_keeps_its_file(
    make_cluster: MakeCluster, bystander: Bystander, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster().start()
    cluster.stop()
    hidden = bystander()
    leave_pid_file(cluster, [str(hidden.pid), str(cluster.data_dir), "0", "5432", "/absent", "*"])
    unclear = postmaster.Evidence.UNCLEAR
    with monkeypatch.context() as patch:
        patch.setattr(postmaster, "examine_process", lambda *_: unclear)
        patch.setattr("penstock.postgres.cluster.examine_process", lambda *_: unclear)
        with pytest.raises(PostgresFailed, match="may be the server"):
            cluster.start()
    claim = read_pid_file(cluster.data_dir)
    assert claim is not None
    assert claim.pid == hidden.pid
    assert hidden.poll() is None
