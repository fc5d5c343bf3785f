"""Which operating-system account runs the server, and how a program is run as that account.

Postgres refuses to run as root. Started by root, everything of the server therefore runs as
`postgres`, or `nobody` where that account does not exist. Nothing here ever changes the
permissions of a directory that already exists: what the account cannot reach is reported.
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.kernel.errors import PostgresFailed

_UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """An account; `dropped` says that it is not the one this process runs as."""

    name: str
    uid: int
    gid: int
    dropped: bool


class AccountProcess(subprocess.Popen[bytes]):
    """A child process that runs as `account`, in the root directory.

    The working directory is fixed because the account may be unable to enter ours, and the
    programs of Postgres fail when they cannot name their working directory.
    """

    def __init__(
        self,
        account: Account,
        arguments: Sequence[str | Path],
        *,
        environ: Mapping[str, str] | None = None,
        output: int | IO[bytes] = subprocess.DEVNULL,
        errors: int = subprocess.STDOUT,
        detached: bool = False,
    ) -> None:
        super().__init__(
            [os.fspath(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd="/",
            env=None if environ is None else dict(environ),
            user=account.uid if account.dropped else None,
            group=account.gid if account.dropped else None,
            extra_groups=[] if account.dropped else None,
            start_new_session=detached,
        )


def run_as(
    account: Account,
    arguments: Sequence[str | Path],
    *,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> tuple[int, str]:
    """Run a program to its end; return its exit code and output (both streams in one text).

    As in a shell, code 124 stands for "took too long" (and was killed), 126 for "may not be
    executed", 127 for "does not exist".
    """
    try:
        process = AccountProcess(account, arguments, environ=environ, output=subprocess.PIPE)
    except FileNotFoundError as error:
        return 127, str(error)
    except OSError as error:
        return 126, str(error)
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return 124, f"killed after {timeout_s:.0f} s"
        except BaseException:
            # Also on Ctrl-C: leaving the block waits for the child, which must not go on alone.
            process.kill()
            raise
    return process.returncode, output.decode(errors="replace")


def current_account() -> Account:
    """The account of this process."""
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # containers often run under a number without an entry
        name = str(uid)
    return Account(name, uid, os.getegid(), dropped=False)


def server_account(data_dir: Path | None = None) -> Account:
    """The account for a server: ours, or an unprivileged one when we are root.

    A data directory that exists keeps its owner, so that a cluster made under `nobody` still
    starts after an account `postgres` has appeared.
    """
    current = current_account()
    if current.uid != 0:
        return current
    owner = _owner(data_dir) if data_dir is not None else None
    if owner is not None:
        return owner
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid, dropped=True)
    raise PostgresFailed(
        "root cannot run Postgres, and neither an account 'postgres' nor 'nobody' exists",
        todo="run this command as an ordinary user, or create an account named 'postgres'.",
    )


def _owner(data_dir: Path) -> Account | None:
    try:
        # An empty directory is replaced when the cluster is made, so its owner means nothing.
        uid = (data_dir / "PG_VERSION").stat().st_uid
        entry = pwd.getpwuid(uid)
    except (OSError, KeyError):
        return None
    return None if uid == 0 else Account(entry.pw_name, uid, entry.pw_gid, dropped=True)


def can_enter(directory: Path, account: Account) -> bool:
    """Whether the account may traverse every part of the path; asked of the system, not guessed."""
    code, _ = run_as(account, ["/bin/sh", "-c", 'test -x "$1"', "sh", directory])
    return code == 0


def require_entry(directory: Path, account: Account) -> None:
    """Raise, naming the blocking directory, unless the account may enter the path."""
    if not account.dropped or can_enter(directory, account):
        return
    code, output = run_as(account, ["/bin/sh", "-c", "exit 0"])
    if code != 0:
        raise PostgresFailed(
            f"nothing can be run as the account '{account.name}': {output.strip()}",
            happened="root may not run Postgres, and it cannot switch account here.",
            todo="run as an ordinary user.",
        )
    blocking = next(
        (
            part
            for part in (*reversed(directory.parents), directory)
            if not can_enter(part, account)
        ),
        directory,
    )
    raise PostgresFailed(
        f"the account '{account.name}' cannot enter {blocking}, which leads to {directory}",
        happened=f"root may not run Postgres, so it runs as '{account.name}'; "
        "permissions of existing directories are never changed.",
        todo="choose a data directory elsewhere (PENSTOCK_STATE_DIR), or run as an ordinary user.",
    )


def make_parents(directory: Path, account: Account) -> None:
    """Create the directory and its missing parents so that the account can enter them."""
    missing = [part for part in (directory, *directory.parents) if not part.exists()]
    for part in reversed(missing):
        try:
            part.mkdir()
        except FileExistsError:
            continue  # another process was faster, and set the permissions it wants
        # Explicit, because a strict umask would lock the server out of what we just created.
        part.chmod(0o755 if account.dropped else 0o700)


def hand_over(path: Path, account: Account) -> None:
    """Give a file or directory that we created to the account."""
    if account.dropped:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
