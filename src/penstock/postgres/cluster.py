"""A named Postgres server on a data directory of its own: start, adopt, stop, kill.

Any number of clusters run side by side. A server outlives the process that started it; the next
`start()` on the same data directory adopts it. Only a process proven to be the server of the data
directory is ever signalled.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import (
    AccountProcess,
    current_account,
    run_as,
    server_account,
)
from penstock.postgres.address import Address, tcp_url
from penstock.postgres.binaries import Binaries, find_binaries
from penstock.postgres.initdb import (
    LOGIN_FILE,
    cluster_major,
    is_cluster,
    make_cluster,
    prepare_parent,
)
from penstock.postgres.launch import ACCEPTING, POLL_S, Outcome, launch, log_path, log_tail
from penstock.postgres.lock import launcher_lock
from penstock.postgres.pidfile import PidFile, disown, pid_path, read_pid_file
from penstock.postgres.postmaster import (
    Evidence,
    examine_process,
    find_postmaster,
    signal_postmaster,
)
from penstock.postgres.relocation import reachable_binaries
from penstock.postgres.sockets import make_socket_dir, remove_socket_dir

_SOCKET_PORT = 5432
_QUIT_TIMEOUT_S = 15.0
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Cluster:
    """One server and its data directory.

    `port` None means Unix socket only; a number also opens that TCP port on the loopback address,
    with a password. `settings` are server settings for the next launch. `durable=False` gives up
    safety after a power failure for speed; a killed server still keeps its commits.
    """

    def __init__(
        self,
        name: str,
        data_dir: Path | str,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
        binaries: Binaries | None = None,
    ) -> None:
        self.name = name
        self.data_dir = Path(data_dir).absolute().resolve()
        self.port = port
        self.settings = dict(settings or {})
        self.durable = durable
        self._binaries = binaries
        self._reachable: Binaries | None = None
        self._address: Address | None = None

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {str(self.data_dir)!r})"

    @property
    def log_path(self) -> Path:
        """The server log; it grows across restarts and is rotated at a start."""
        return log_path(self.data_dir)

    @property
    def binaries(self) -> Binaries:
        """The programs that serve this cluster: those of its version, reachable for its account."""
        if self._reachable is None:
            major = cluster_major(self.data_dir) if is_cluster(self.data_dir) else None
            found = self._binaries or find_binaries(major=major)
            self._reachable = reachable_binaries(found, server_account(self.data_dir))
        return self._reachable

    @property
    def pid(self) -> int | None:
        """The process number of the proven server, or None."""
        claim = self._find()
        return None if claim is None else claim.pid

    def is_running(self) -> bool:
        """Whether a proven server process lives (it may still be recovering)."""
        return self._find() is not None

    def start(self, *, timeout_s: float = 600.0) -> Self:
        """Make the cluster if it is new, start or adopt its server, return when it is ready.

        Idempotent. The time limit is generous because crash recovery may take long; a server that
        ends is reported at once.
        """
        deadline = time.monotonic() + timeout_s
        account = server_account(self.data_dir)
        prepare_parent(self.data_dir, account)
        with launcher_lock(self.data_dir, timeout_s=timeout_s):
            while True:
                claim = self._settle(deadline)
                if claim is not None:
                    self._adopt(claim)
                    return self
                if not is_cluster(self.data_dir):
                    make_cluster(self.data_dir, self.binaries, account, durable=self.durable)
                if self._launch(deadline) is Outcome.READY:
                    return self
                self._pause_while_occupied(deadline)

    def stop(self, *, timeout_s: float = 60.0) -> None:
        """Stop the server cleanly; after the time limit without a checkpoint. Idempotent.

        Clients are disconnected and their open transactions rolled back.
        """
        claimed = read_pid_file(self.data_dir)
        if self._address is None and claimed is not None:
            self._address = _address_in(claimed)
        claim = signal_postmaster(self.data_dir, self._ask, signal.SIGINT)
        if claim is not None and not self._wait_gone(claim, timeout_s):
            signal_postmaster(self.data_dir, self._ask, signal.SIGQUIT)
            if not self._wait_gone(claim, _QUIT_TIMEOUT_S):
                raise PostgresFailed(
                    f"the server of {self.data_dir} (process {claim.pid}) does not stop",
                    todo=f"read {self.log_path}; it was asked with SIGINT, then SIGQUIT.",
                )
        self._forget_address()

    def kill(self) -> int | None:
        """SIGKILL the proven server, as a crash would; return its process number, None if none."""
        claim = signal_postmaster(self.data_dir, self._ask, signal.SIGKILL)
        if claim is None:
            return None
        self._wait_gone(claim, _QUIT_TIMEOUT_S)
        return claim.pid

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """A URL over the Unix socket, for libpq, psycopg and asyncpg."""
        return self.address.url(database, user)

    def tcp_url(self, database: str = "postgres") -> str:
        """A URL over the loopback TCP port, as superuser with the cluster's own password."""
        if self.port is None:
            raise PostgresFailed(
                f"the cluster '{self.name}' has no TCP port", todo="pass port= to the cluster."
            )
        password = (self.data_dir / LOGIN_FILE).read_text().strip()
        return tcp_url(self.port, database, user="postgres", password=password)

    @property
    def address(self) -> Address:
        """Where the running server listens; raises when it was never started."""
        self._address = self._address or self._known_address()
        if self._address is None:
            raise PostgresFailed(
                f"the cluster '{self.name}' is not running", todo="call start() first."
            )
        return self._address

    def psql_env(self, database: str = "postgres", user: str = "postgres") -> dict[str, str]:
        """An environment in which `psql`, `pgbench` and the like reach this server."""
        bin_dir = self.binaries.bin_dir
        return self.address.environ(os.environ, database=database, user=user, bin_dir=bin_dir)

    def run(
        self, program: str, *arguments: str, database: str = "postgres", timeout_s: float = 60.0
    ) -> str:
        """Run a packaged client program against this server; return its standard output."""
        command: list[str | Path] = [self.binaries.program(program), *arguments]
        with AccountProcess(
            current_account(),
            command,
            environ=self.psql_env(database),
            output=subprocess.PIPE,
            errors=subprocess.PIPE,
        ) as process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise PostgresFailed(
                f"{program} ended with code {process.returncode}: "
                f"{errors.decode(errors='replace').strip()}",
                happened=f"a client program failed against the cluster '{self.name}'.",
                todo="the message above is the program's own.",
            )
        return output.decode()

    def create_database(self, name: str, template: str = "template1") -> str:
        """Create a database as a copy of `template`; return its URL."""
        self.run("createdb", f"--template={template}", "--", name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, disconnecting its clients."""
        self.run("dropdb", "--if-exists", "--force", "--", name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _find(self) -> PidFile | None:
        return find_postmaster(self.data_dir, self._ask)

    def _settle(self, deadline: float) -> PidFile | None:
        """Wait while a living server is starting or stopping; return it if it became ready."""
        while True:
            claim = self._find()
            if claim is None or claim.status in ACCEPTING:
                return claim
            if time.monotonic() >= deadline:
                raise PostgresFailed(
                    f"the server of {self.data_dir} (process {claim.pid}) runs but is still "
                    f"'{claim.status or 'starting'}'; it was left alone",
                    todo=f"watch {self.log_path}, then start again.",
                )
            time.sleep(POLL_S)

    def _adopt(self, claim: PidFile) -> None:
        if self.port is not None and claim.port != self.port:
            raise PostgresFailed(
                f"the server of '{self.name}' is already running without TCP port {self.port}",
                todo="stop it first; its port is fixed when it starts.",
            )
        address = _address_in(claim)
        if address is None or not address.socket_path.exists():
            raise PostgresFailed(
                f"the server of '{self.name}' runs (process {claim.pid}) but its socket is gone",
                happened="something removed the socket's directory while the server was running.",
                todo="stop the cluster and start it again.",
            )
        self._address = address

    def _launch(self, deadline: float) -> Outcome:
        account = server_account(self.data_dir)
        self._disown_stale_file()
        socket_dir = make_socket_dir(self.data_dir, account)
        arguments = self._server_arguments(socket_dir)
        try:
            outcome = launch(self.data_dir, arguments, account, deadline=deadline)
        except PostgresFailed:
            if read_pid_file(self.data_dir) is None:
                remove_socket_dir(socket_dir, self.data_dir, account)
            raise
        if outcome is Outcome.READY:
            self._address = Address(socket_dir, self.port or _SOCKET_PORT)
        return outcome

    def _pause_while_occupied(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise PostgresFailed(
                f"the data directory {self.data_dir} stays occupied:\n{log_tail(self.log_path)}",
                happened="processes of an earlier server are still at work there.",
                todo="wait for them to end; they finish by themselves.",
            )
        time.sleep(POLL_S)

    def _disown_stale_file(self) -> None:
        """Called when no server was proven: whatever the file says, it must not block a start."""
        claim = read_pid_file(self.data_dir)
        if claim is not None and examine_process(claim, self.data_dir) is Evidence.UNCLEAR:
            # Touching the file of a server that is alive would make it shut down.
            raise PostgresFailed(
                f"process {claim.pid} may be the server of {self.data_dir}, which cannot be proven",
                happened="the system hides that process, and the server does not answer.",
                todo=f"if no server runs there, remove {pid_path(self.data_dir)}; else wait.",
            )
        if pid_path(self.data_dir).exists():
            disown(self.data_dir, server_account(self.data_dir))

    def _server_arguments(self, socket_dir: Path) -> list[str | Path]:
        settings = {
            "listen_addresses": "" if self.port is None else "127.0.0.1",
            "port": str(self.port or _SOCKET_PORT),
            "unix_socket_directories": str(socket_dir),
            "unix_socket_permissions": "0700",
            "logging_collector": "off",
            **({} if self.durable else _NOT_DURABLE),
            **self.settings,
        }
        pairs = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [self.binaries.program("postgres"), "-D", self.data_dir, *pairs]

    def _ask(self, claim: PidFile) -> bool:
        """Whether the server at the claimed socket serves our data directory."""
        address = _address_in(claim)
        if address is None:
            return False
        environ = address.environ(
            os.environ, database="postgres", user="postgres", bin_dir=self.binaries.bin_dir
        )
        psql = str(self.binaries.program("psql"))
        command = [psql, "--no-psqlrc", "-Atc", "show data_directory"]
        code, output = run_as(current_account(), command, environ=environ, timeout_s=15.0)
        return code == 0 and _same_directory(Path(output.strip()), self.data_dir)

    def _wait_gone(self, claim: PidFile, timeout_s: float) -> bool:
        """Wait for a proven server to end. An unclear process counts as alive here."""
        deadline = time.monotonic() + timeout_s
        while examine_process(claim, self.data_dir) is not Evidence.IS_NOT:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _known_address(self) -> Address | None:
        claim = self._find()
        return None if claim is None else _address_in(claim)

    def _forget_address(self) -> None:
        address, self._address = self._address, None
        if address is None or not self.data_dir.parent.is_dir():
            return
        # A launcher that holds the lock may be starting a server in this very directory.
        with suppress(PostgresFailed), launcher_lock(self.data_dir, timeout_s=0.0):
            if not self.is_running():
                account = server_account(self.data_dir)
                remove_socket_dir(address.socket_dir, self.data_dir, account)


def _address_in(claim: PidFile) -> Address | None:
    if not claim.socket_dir or claim.port is None:
        return None
    return Address(Path(claim.socket_dir), claim.port)


def _same_directory(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False
