"""Starting, stopping, crashing and restarting a cluster."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from penstock.kernel.errors import PostgresFailed
from penstock.postgres import Cluster, find_binaries
from penstock.postgres.initdb import is_cluster
from penstock.postgres.sockets import SOCKET_PATH_BYTES_MAX

MakeCluster = Callable[..., Cluster]
SOURCE = Path(__file__).parents[2] / "src"


def query(cluster: Cluster, sql: str, database: str = "postgres") -> str:
    return cluster.run("psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, database=database)


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


async def test_a_fresh_cluster_starts_serves_asyncpg_and_stops(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    async with cluster:
        socket_dir = cluster.address.socket_dir
        assert cluster.is_running()
        assert cluster.pid is not None
        assert len(os.fsencode(cluster.address.socket_path)) <= SOCKET_PATH_BYTES_MAX
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        connection = await asyncpg.connect(cluster.url())
        assert await connection.fetchval("show data_directory") == str(cluster.data_dir)
        await connection.close()
    assert not cluster.is_running()
    assert cluster.pid is None
    assert not socket_dir.exists()
    with pytest.raises(PostgresFailed, match="not running"):
        cluster.url()


def test_start_and_stop_are_idempotent(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.stop()
    pid = cluster.start().pid
    assert cluster.start().pid == pid
    cluster.stop()
    cluster.stop()
    assert not cluster.is_running()


def test_a_stopped_cluster_keeps_rows_and_address(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(durable=True)
    url = cluster.start().url()
    query(cluster, "create table kept as select 42 as answer")
    cluster.stop()
    assert cluster.start().url() == url
    assert query(cluster, "select answer from kept") == "42\n"


def test_two_clusters_run_at_once_and_are_separate(make_cluster: MakeCluster) -> None:
    with make_cluster("engine") as engine, make_cluster("ledger") as ledger:
        assert engine.pid != ledger.pid
        assert engine.url() != ledger.url()
        for cluster in (engine, ledger):
            assert query(cluster, "show data_directory").strip() == str(cluster.data_dir)
        engine.stop()
        assert ledger.is_running()


def test_databases_are_copied_from_a_template_and_dropped(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        cluster.create_database("origin")
        query(cluster, "create table t as select 7 as n", "origin")
        url = cluster.create_database("odd name/%", template="origin")
        assert "/odd%20name%2F%25?" in url
        assert query(cluster, "select n from t", "odd name/%") == "7\n"
        cluster.drop_database("odd name/%")
        cluster.drop_database("odd name/%")
        with pytest.raises(PostgresFailed, match="already exists"):
            cluster.create_database("origin")


def test_pgbench_of_the_package_reaches_the_server(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        cluster.run("pgbench", "--initialize", "--quiet")
        assert query(cluster, "select count(*) from pgbench_accounts") == "100000\n"


async def test_a_tcp_port_is_opened_on_request_and_asks_for_a_password(
    make_cluster: MakeCluster, free_port: int
) -> None:
    with make_cluster(port=free_port) as cluster:
        connection = await asyncpg.connect(cluster.tcp_url())
        assert await connection.fetchval("show listen_addresses") == "127.0.0.1"
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(
                host="127.0.0.1", port=free_port, user="postgres", password="wrong", ssl=False
            )
        assert query(cluster, "select 1") == "1\n"


def test_without_a_port_no_tcp_socket_is_opened(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        assert query(cluster, "show listen_addresses") == "\n"
        with pytest.raises(PostgresFailed, match="no TCP port"):
            cluster.tcp_url()


def test_settings_reach_the_server(make_cluster: MakeCluster) -> None:
    with make_cluster(settings={"work_mem": "5MB"}) as cluster:
        assert query(cluster, "show work_mem") == "5MB\n"
        assert query(cluster, "show fsync") == "off\n"


def test_a_server_that_ends_while_starting_is_reported_at_once_with_its_log(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(settings={"no_such_setting": "1"})
    began = time.monotonic()
    with pytest.raises(PostgresFailed, match="no_such_setting"):
        cluster.start()
    assert time.monotonic() - began < 20
    assert not cluster.is_running()


@pytest.mark.fault
def test_committed_rows_survive_kill_9(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(durable=True).start()
    query(cluster, "create table kept as select * from generate_series(1, 20000)")
    killed = cluster.kill()
    assert killed is not None
    assert not cluster.is_running()
    assert cluster.start().pid != killed
    assert query(cluster, "select count(*) from kept") == "20000\n"


@pytest.mark.fault
def test_start_waits_for_backends_of_a_killed_server(make_cluster: MakeCluster) -> None:
    cluster = make_cluster().start()
    environ = cluster.psql_env()
    # A backend busy in a computation notices the death of its server only when it is done.
    busy = subprocess.Popen(
        [
            cluster.binaries.program("psql"),
            "-X",
            "-c",
            "select sum(n) from generate_series(1, 3e6) n",
        ],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        active = "select count(*) from pg_stat_activity where query like 'select sum(n)%'"
        wait_until(lambda: query(cluster, active) == "1\n")
        cluster.kill()
        cluster.start()
        assert query(cluster, "select 1") == "1\n"
    finally:
        busy.wait(timeout=30)


@pytest.mark.fault
def test_stop_escalates_when_the_server_does_not_finish(make_cluster: MakeCluster) -> None:
    cluster = make_cluster().start()
    checkpointer = query(
        cluster, "select pid from pg_stat_activity where backend_type = 'checkpointer'"
    )
    # Without its checkpointer a clean shutdown cannot end.
    os.kill(int(checkpointer), signal.SIGSTOP)
    cluster.stop(timeout_s=0.5)
    assert not cluster.is_running()
    assert not Path(f"/proc/{int(checkpointer)}/fd").exists()
    assert query(cluster.start(), "select 1") == "1\n"


def test_a_passed_deadline_leaves_the_server_to_be_adopted(make_cluster: MakeCluster) -> None:
    cluster = make_cluster().start()
    cluster.stop()
    with pytest.raises(PostgresFailed, match="left running"):
        cluster.start(timeout_s=0.0)
    # At once: the server of the first attempt may not even have written its file.
    assert query(cluster.start(), "select 1") == "1\n"
    assert query(cluster, "show data_directory").strip() == str(cluster.data_dir)


def test_a_temporary_directory_with_spaces_or_too_long_a_name_is_no_obstacle(
    make_cluster: MakeCluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a b", "x" * 120):
        (place / name).mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place / name))
        with make_cluster() as cluster:
            assert query(cluster, "select 1") == "1\n"
            assert (cluster.address.socket_dir.parent == place / name) == (name == "a b")


@pytest.mark.fault
def test_initdb_killed_half_way_leaves_nothing_that_is_trusted(
    make_cluster: MakeCluster, place: Path
) -> None:
    program = (
        "import sys; from penstock.postgres import Cluster; Cluster('one', sys.argv[1]).start()"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", program, str(place / "one")],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        start_new_session=True,
    )
    wait_until(lambda: any(place.glob(".one.new-*/data/PG_VERSION")))
    # The launcher leads a group of its own: this ends it together with initdb.
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert not is_cluster(place / "one")
    with make_cluster() as cluster:
        assert query(cluster, "select 1") == "1\n"
        assert not list(place.glob(".one.new-*"))


def test_a_directory_with_other_content_is_refused_and_untouched(
    make_cluster: MakeCluster, place: Path
) -> None:
    (place / "one").mkdir()
    (place / "one" / "diary.txt").write_text("mine")
    with pytest.raises(PostgresFailed, match="not empty"):
        make_cluster().start()
    assert (place / "one" / "diary.txt").read_text() == "mine"
    shutil.rmtree(place / "one")


def test_an_empty_directory_becomes_the_cluster(make_cluster: MakeCluster, place: Path) -> None:
    (place / "one").mkdir()
    with make_cluster() as cluster:
        assert query(cluster, "select 1") == "1\n"


def test_concurrent_starts_yield_one_server(make_cluster: MakeCluster) -> None:
    clusters = [make_cluster() for _ in range(4)]
    threads = [threading.Thread(target=cluster.start) for cluster in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({cluster.pid for cluster in clusters}) == 1
    assert clusters[0].pid is not None


def test_a_cluster_keeps_the_version_that_made_it(make_cluster: MakeCluster) -> None:
    try:
        older = find_binaries(major=15)
    except PostgresFailed:
        pytest.skip("Postgres 15 is not installed on this machine")
    with make_cluster(binaries=older) as cluster:
        assert query(cluster, "show server_version_num").startswith("15")
    again = Cluster("one", cluster.data_dir, durable=False)
    with again:
        assert query(again, "show server_version_num").startswith("15")
