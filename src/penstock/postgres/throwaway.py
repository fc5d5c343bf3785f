"""Clusters for one test or one run: made in a temporary directory, removed at the end.

Three things remove them: the end of the block, the end of the interpreter, and, should the process
be killed, a small guard process that waits for its end.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import can_enter, hand_over, server_account
from penstock.postgres.binaries import Binaries
from penstock.postgres.cluster import Cluster
from penstock.postgres.pidfile import pid_path

_PREFIX = "penstock-throwaway-"
_RECOVERY_TIMEOUT_S = 30.0


class _Guard(subprocess.Popen[bytes]):
    """A process that removes the cluster when the pipe to it closes, however that comes about."""

    def __init__(self, directory: Path) -> None:
        package_root = Path(__file__).parents[2]
        search = [str(package_root), *filter(None, [os.environ.get("PYTHONPATH")])]
        super().__init__(
            [sys.executable, "-m", "penstock.postgres.guard", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
            # A signal to our process group must not end the guard together with us.
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard after the cluster is gone."""
        assert self.stdin is not None
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.wait()


@contextmanager
def throwaway_cluster(
    *,
    name: str = "throwaway",
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    durable: bool = False,
    binaries: Binaries | None = None,
) -> Iterator[Cluster]:
    """A fresh, running cluster; about a second to start. Not durable unless asked for."""
    directory = _make_directory()
    cluster = Cluster(
        name,
        directory / "data",
        port=port,
        settings=settings,
        durable=durable,
        binaries=binaries,
    )
    guard = _Guard(directory)
    creator = os.getpid()

    def remove() -> None:
        # A forked copy of this process inherits the registration but not the cluster.
        if os.getpid() == creator:
            discard(cluster, directory)
            guard.dismiss()

    atexit.register(remove)
    try:
        yield cluster.start()
    finally:
        atexit.unregister(remove)
        remove()


def discard(cluster: Cluster, directory: Path) -> None:
    """Stop the server and remove everything below the directory. Idempotent."""
    try:
        if pid_path(cluster.data_dir).exists() and not cluster.is_running():
            # A killed server leaves shared memory behind, which only its successor releases.
            with suppress(PostgresFailed):
                cluster.start(timeout_s=_RECOVERY_TIMEOUT_S)
        cluster.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _make_directory() -> Path:
    account = server_account()
    base: str | None = None
    if account.dropped and not can_enter(Path(tempfile.gettempdir()), account):
        # TMPDIR may point below a private directory of root's; this one is open everywhere.
        base = os.fspath(Path("/var") / "tmp")
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base)).resolve()
    # Given to the server's account instead of opened to all: the log may hold statements.
    hand_over(directory, account)
    return directory
