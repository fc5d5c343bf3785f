"""Throwaway and supervised clusters: what is removed, what comes back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.postgres import Cluster, supervise, throwaway_cluster

MakeCluster = Callable[..., Cluster]
SOURCE = Path(__file__).parents[2] / "src"


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def run_program(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )


OPEN_ONE = (
    "import sys, time; from penstock.postgres import throwaway_cluster; "
    "block = throwaway_cluster(); c = block.__enter__(); "
    "print(c.data_dir.parent, c.address.socket_dir, c.pid, flush=True); "
)


def test_a_throwaway_cluster_leaves_nothing_behind() -> None:
    with throwaway_cluster(settings={"work_mem": "3MB"}) as cluster:
        assert cluster.run("psql", "-X", "-Atc", "show work_mem") == "3MB\n"
        directory, socket_dir = cluster.data_dir.parent, cluster.address.socket_dir
    assert not cluster.is_running()
    assert not directory.exists()
    assert not socket_dir.exists()


@pytest.mark.fault
def test_a_killed_throwaway_cluster_leaves_nothing_behind() -> None:
    with throwaway_cluster() as cluster:
        directory, socket_dir = cluster.data_dir.parent, cluster.address.socket_dir
        cluster.kill()
    assert not directory.exists()
    assert not socket_dir.exists()


def test_the_end_of_the_interpreter_removes_an_open_throwaway_cluster() -> None:
    with run_program(OPEN_ONE) as process:
        output, _ = process.communicate(timeout=50)
    directory, socket_dir, pid = output.split()
    assert process.returncode == 0
    assert not Path(directory).exists()
    assert not Path(socket_dir).exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.fault
def test_a_killed_process_does_not_leak_its_throwaway_cluster() -> None:
    with run_program(OPEN_ONE + "time.sleep(60)") as process:
        assert process.stdout is not None
        directory, socket_dir, _ = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(directory).exists() and not Path(socket_dir).exists())


@pytest.mark.fault
def test_a_supervised_server_comes_back_after_kill_9(make_cluster: MakeCluster) -> None:
    restarted: list[int | None] = []
    with supervise(make_cluster(), on_restart=lambda c: restarted.append(c.pid)) as supervisor:
        for _ in range(2):
            restarted.clear()
            killed = supervisor.cluster.kill()
            assert killed is not None
            wait_until(lambda: len(restarted) == 1)
            assert supervisor.cluster.pid not in (None, killed)
        assert supervisor.restart_count == 2
    assert not supervisor.cluster.is_running()


def test_a_supervised_server_that_was_stopped_stays_stopped(make_cluster: MakeCluster) -> None:
    with supervise(make_cluster()) as supervisor:
        make_cluster().stop()
        time.sleep(0.5)  # several rounds of the watcher
        assert not supervisor.cluster.is_running()
        assert supervisor.restart_count == 0
        pid = make_cluster().start().pid
        time.sleep(0.3)  # lets the watcher see it alive again
        assert supervisor.cluster.kill() == pid
        wait_until(lambda: supervisor.restart_count == 1)


@pytest.mark.fault
def test_a_server_that_cannot_come_back_is_tried_again_with_pauses(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    with supervise(cluster) as supervisor:
        cluster.settings["no_such_setting"] = "1"
        cluster.kill()
        wait_until(lambda: supervisor.last_error is not None)
        assert "no_such_setting" in str(supervisor.last_error)
        del cluster.settings["no_such_setting"]
        wait_until(lambda: supervisor.restart_count == 1)
        assert cluster.is_running()
