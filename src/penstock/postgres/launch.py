"""Starts one server process and waits until it accepts connections or has ended.

Ready is what the server itself writes into the eighth line of its `postmaster.pid`. The process
gets a session of its own, so that it outlives a launcher that crashes or is interrupted.
"""

import os
import threading
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import IO

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import Account, AccountProcess
from penstock.postgres.initdb import server_environ
from penstock.postgres.pidfile import PidFile, read_pid_file

ACCEPTING = ("ready", "standby")
POLL_S = 0.02
_LOG_BYTES_MAX = 16 * 1024 * 1024
_TAIL_BYTES = 4000
_OCCUPIED = (
    "is still in use",  # backends of a killed server hold its memory until they notice its death
    'lock file "postmaster.pid" already exists',  # another launcher's server was a moment faster
)


class Outcome(Enum):
    """How a launch ended."""

    READY = "ready"
    OCCUPIED = "occupied"


def log_path(data_dir: Path) -> Path:
    """The server log, beside the data directory."""
    return data_dir.with_name(f"{data_dir.name}.log")


def launch(
    data_dir: Path, arguments: Sequence[str | Path], account: Account, *, deadline: float
) -> Outcome:
    """Spawn the server and wait until `deadline` (monotonic seconds).

    OCCUPIED means that another server, or what is left of one, still holds the data directory.
    Raises PostgresFailed with the tail of the log when the process ends. When the deadline passes
    first, the server is left running: ending a long crash recovery would only begin it again.
    """
    log = log_path(data_dir)
    with _open_log(log) as stream:
        logged_before = stream.tell()
        process = AccountProcess(
            account, arguments, environ=server_environ(), output=stream, detached=True
        )
    # Reaps the server whenever it ends, so that it never stays as a zombie of this process.
    threading.Thread(target=process.wait, name="postgres-reaper", daemon=True).start()
    while time.monotonic() < deadline:
        claim = read_pid_file(data_dir)
        if process.returncode is not None:
            tail = log_tail(log, logged_before)
            if any(text in tail for text in _OCCUPIED):
                return Outcome.OCCUPIED
            raise PostgresFailed(
                f"the server ended with code {process.returncode} while starting:\n{tail}",
                todo=f"the last lines above name the cause; the whole log is {log}.",
            )
        if is_accepting(claim, process.pid):
            return Outcome.READY
        time.sleep(POLL_S)
    raise PostgresFailed(
        f"the server (process {process.pid}) is not ready yet; it was left running:\n"
        f"{log_tail(log, logged_before)}",
        happened="crash recovery of a big database can take longer than the deadline.",
        todo=f"watch {log} and start again: the running server is then adopted.",
    )


def is_accepting(claim: PidFile | None, pid: int) -> bool:
    """Whether the file was written by this process and says that connections are accepted."""
    return claim is not None and claim.pid == pid and claim.status in ACCEPTING


def log_tail(log: Path, start: int = 0) -> str:
    """The last lines of the log, none of them before byte `start`."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(start, size - _TAIL_BYTES))
            return stream.read().decode(errors="replace").strip()
    except OSError as error:
        return f"(no log: {error})"


def _open_log(log: Path) -> IO[bytes]:
    try:
        if log.lstat().st_size > _LOG_BYTES_MAX:
            log.replace(log.with_name(f"{log.name}.1"))
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    stream = os.fdopen(os.open(log, flags, 0o600), "ab")
    stream.seek(0, os.SEEK_END)
    return stream
