"""Restarts a server that dies. For demos and development; production has its own supervisor."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import run_as, server_account
from penstock.postgres.cluster import Cluster
from penstock.postgres.initdb import server_environ

_POLL_S = 0.1
_PAUSE_S_MIN = 0.1
_PAUSE_S_MAX = 5.0


class Supervisor:
    """A watcher thread for one cluster.

    A server that died is started again, with pauses that double up to five seconds while it does
    not come up. A server that was stopped on purpose, by whatever process, stays stopped.
    """

    def __init__(
        self, cluster: Cluster, *, on_restart: Callable[[Cluster], None] | None = None
    ) -> None:
        self.cluster = cluster
        self.restart_count = 0
        self.last_error: Exception | None = None
        self._on_restart = on_restart
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name=f"postgres-supervisor-{cluster.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End watching and leave the server as it is; waits for a restart under way."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        pause_s = _PAUSE_S_MIN
        wanted = True
        while not self._ended.wait(_POLL_S):
            try:
                wanted = self._check(wanted)
                self.last_error = None
                pause_s = _PAUSE_S_MIN
            except (PostgresFailed, OSError) as error:
                self.last_error = error
                self._ended.wait(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _check(self, wanted: bool) -> bool:
        """Restart a server that died; return whether the next death calls for a restart."""
        if self.cluster.is_running():
            return True
        if not wanted or shut_down_cleanly(self.cluster):
            return False
        self.cluster.start()
        self.restart_count += 1
        if self._on_restart is not None:
            self._on_restart(self.cluster)
        return True


def shut_down_cleanly(cluster: Cluster) -> bool:
    """Whether the last server of the data directory was stopped, as opposed to having died."""
    command = [cluster.binaries.program("pg_controldata"), cluster.data_dir]
    account = server_account(cluster.data_dir)
    _, output = run_as(account, command, environ=server_environ())
    return any(
        line.startswith("Database cluster state:") and line.endswith(" shut down")
        for line in output.splitlines()
    )


@contextmanager
def supervise(
    cluster: Cluster, *, on_restart: Callable[[Cluster], None] | None = None
) -> Iterator[Supervisor]:
    """Start the cluster and keep it running inside the block; stop it at the end."""
    cluster.start()
    supervisor = Supervisor(cluster, on_restart=on_restart)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        cluster.stop()
