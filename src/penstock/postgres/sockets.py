"""The private directory that holds a server's Unix socket.

It is short, because a socket path may have 107 bytes at most, and closed to other accounts,
because whoever reaches the socket is let in as superuser.
"""

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import Account, can_enter, hand_over

SOCKET_PATH_BYTES_MAX = 107
_PREFIX = "penstock-"
_LONGEST_NAME = len(f"/{_PREFIX}0123456789ab-01234567/.s.PGSQL.65535")


def make_socket_dir(data_dir: Path, account: Account) -> Path:
    """Create, or find again, the socket directory of a data directory.

    The name follows from the data directory, so that a restarted server keeps its address. If
    somebody else sits on that name, a random one is used instead.
    """
    base = _base(account)
    directory = base / _name(data_dir)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if _is_private(directory, account):
            return directory
        directory = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=base))
    hand_over(directory, account)
    return directory


def remove_socket_dir(directory: Path, data_dir: Path, account: Account) -> None:
    """Remove the socket directory that was made for the data directory.

    A directory of any other name, and any other file in it, is left alone.
    """
    if not directory.name.startswith(_name(data_dir)) or not _is_private(directory, account):
        return
    # Opened without following links, so that the names below cannot be redirected.
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(".s.PGSQL.")]
            for name in names:
                os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        directory.rmdir()


def _name(data_dir: Path) -> str:
    return f"{_PREFIX}{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]}"


def _base(account: Account) -> Path:
    candidates = (Path(tempfile.gettempdir()), Path("/") / "tmp", Path("/var") / "tmp")
    for base in candidates:
        # Postgres and libpq read a comma as the end of a directory's name.
        plain = "," not in str(base) and '"' not in str(base)
        short = len(os.fsencode(base)) + _LONGEST_NAME <= SOCKET_PATH_BYTES_MAX
        writable = os.access(base, os.W_OK | os.X_OK)
        if plain and short and writable and (not account.dropped or can_enter(base, account)):
            return base
    raise PostgresFailed(
        f"no directory for the server's socket: tried {', '.join(map(str, candidates))}",
        happened="a socket needs a short path in a directory that the server's account can enter.",
        todo="set TMPDIR to a short path that is writable.",
    )


def _is_private(directory: Path, account: Account) -> bool:
    try:
        state = directory.lstat()
    except OSError:
        return False
    closed = stat.S_IMODE(state.st_mode) == 0o700
    return stat.S_ISDIR(state.st_mode) and closed and state.st_uid == account.uid
