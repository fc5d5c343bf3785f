"""Reads `postmaster.pid`, the file a server leaves in its data directory.

The file is a claim, not a fact: after a crash it stays behind and its process number may belong to
anything. `postmaster.py` decides whether to believe it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.postgres.account import Account, hand_over

_SIZE_MAX = 8192


@dataclass(frozen=True, slots=True)
class PidFile:
    """The fields of the file; a server that is just starting has not written all of them."""

    pid: int
    data_dir: str
    started_at_s: int | None
    port: int | None
    socket_dir: str
    status: str


def pid_path(data_dir: Path) -> Path:
    """Where the server of a data directory keeps its file."""
    return data_dir / "postmaster.pid"


def read_pid_file(data_dir: Path) -> PidFile | None:
    """The parsed file; None when it is absent or its first line is no process number."""
    lines = _lines(pid_path(data_dir))
    pid = _number(lines, 0)
    # Postgres writes a negative number for a single-user backend, which is no server of ours.
    if pid is None or pid <= 1:
        return None
    return PidFile(
        pid=pid,
        data_dir=_text(lines, 1),
        started_at_s=_number(lines, 2),
        port=_number(lines, 3),
        socket_dir=_text(lines, 4),
        status=_text(lines, 7),
    )


def disown(data_dir: Path, account: Account) -> None:
    """Make Postgres ignore a file whose process was shown not to be a server of this directory.

    Postgres refuses to start while the number in the file belongs to any live process of the
    account. Deleting the file would also delete its shared-memory key, the interlock that keeps a
    new server out while backends of a killed one still run. So only the number is replaced: by
    ours, because Postgres knows that its own parent is no server.
    """
    path = pid_path(data_dir)
    lines = _lines(path)
    if _number(lines, 0) is None:
        # Torn or empty: nothing in it is worth keeping, and Postgres would stop at it forever.
        path.unlink(missing_ok=True)
        return
    scratch = path.with_name("postmaster.pid.stale")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    hand_over(scratch, account)
    scratch.replace(path)


def _lines(path: Path) -> list[str]:
    try:
        # A root launcher must not be led elsewhere by a link in a directory it handed over.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(_SIZE_MAX).decode(errors="replace").splitlines()


def _text(lines: list[str], index: int) -> str:
    return lines[index].strip() if index < len(lines) else ""


def _number(lines: list[str], index: int) -> int | None:
    try:
        return int(_text(lines, index))
    except ValueError:
        return None
