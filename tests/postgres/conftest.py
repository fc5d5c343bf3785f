"""Places and clusters for these tests; everything made here is gone at the end of its test."""

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from penstock.postgres import Binaries, Cluster
from penstock.postgres.account import AccountProcess, server_account
from penstock.postgres.throwaway import discard

MakeCluster = Callable[..., Cluster]
Bystander = Callable[..., AccountProcess]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account can enter; pytest's own is closed to all but us."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-test-")).resolve()
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def make_cluster(place: Path) -> Iterator[MakeCluster]:
    """Builds clusters that are stopped and removed at the end, whatever the test did to them."""
    made: list[Cluster] = []

    def make(
        name: str = "one",
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
        binaries: Binaries | None = None,
    ) -> Cluster:
        cluster = Cluster(
            name, place / name, port=port, settings=settings, durable=durable, binaries=binaries
        )
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        discard(cluster, cluster.data_dir)


@pytest.fixture
def bystander() -> Iterator[Bystander]:
    """Starts processes of the server's own account that must survive whatever the launcher does."""
    started: list[AccountProcess] = []

    def start(*arguments: str | Path) -> AccountProcess:
        process = AccountProcess(server_account(), arguments or ("/bin/sleep", "120"))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
