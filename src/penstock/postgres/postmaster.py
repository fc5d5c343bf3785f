"""Proves that a process is the server of a data directory, and signals only what is proven.

Proof is needed because process numbers are reused: the number in a stale `postmaster.pid` may be
anybody's. Where /proc tells enough it decides; where it does not, the server itself is asked.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

from penstock.postgres.account import current_account, run_as
from penstock.postgres.pidfile import PidFile, read_pid_file

_PROC = Path("/proc")
# The kernel rounds boot time to seconds, and a busy machine delays the program after the fork.
_START_TOLERANCE_S = 10.0
_PROGRAMS = ("postgres", "postmaster")

Ask = Callable[[PidFile], bool]


class Evidence(Enum):
    """What /proc says about a process: it is the server, it is not, or it cannot tell."""

    IS = "is"
    IS_NOT = "is not"
    UNCLEAR = "unclear"


def find_postmaster(data_dir: Path, ask: Ask) -> PidFile | None:
    """The live, proven server of the data directory, or None.

    `ask` connects to the server that the file names and compares its data directory; it is called
    only when /proc cannot decide. A zombie counts as dead.
    """
    claim = read_pid_file(data_dir)
    if claim is None:
        return None
    evidence = examine_process(claim, data_dir)
    if evidence is Evidence.UNCLEAR:
        evidence = Evidence.IS if ask(claim) else Evidence.IS_NOT
    return claim if evidence is Evidence.IS else None


def examine_process(claim: PidFile, data_dir: Path) -> Evidence:
    """Weigh state, owner, program, directory and start time of the claimed process."""
    if not (_PROC / "self" / "stat").exists():
        return _examine_without_proc(claim.pid)
    process = _PROC / str(claim.pid)
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        owner = process.stat().st_uid
        data_state = data_dir.stat()
    except OSError:
        # A process may be alive and hidden from us.
        return Evidence.UNCLEAR if _exists(claim.pid) else Evidence.IS_NOT
    is_server = (
        fields[0] not in "ZXx"
        and owner == data_state.st_uid
        # Backends rewrite their command line ("postgres: checkpointer"); the postmaster does not.
        and Path(os.fsdecode(arguments[0])).name in _PROGRAMS
        and _works_in(process, data_dir, arguments)
    )
    if not is_server:
        return Evidence.IS_NOT
    if claim.started_at_s is None:
        # The server writes the line with its number, so a file without it is not a server's.
        return Evidence.IS_NOT
    # A stepped clock also moves this, hence "unclear" and not "is not".
    agrees = abs(_started_at_s(fields) - claim.started_at_s) <= _START_TOLERANCE_S
    return Evidence.IS if agrees else Evidence.UNCLEAR


def _examine_without_proc(pid: int) -> Evidence:
    if not _exists(pid):
        return Evidence.IS_NOT
    code, output = run_as(current_account(), ["/bin/ps", "-o", "stat=,comm=", "-p", str(pid)])
    state, _, program = output.strip().partition(" ")
    if code not in (0, 1):
        return Evidence.UNCLEAR
    is_server = Path(program.strip()).name in _PROGRAMS and not state.startswith("Z")
    return Evidence.UNCLEAR if is_server else Evidence.IS_NOT


def _works_in(process: Path, data_dir: Path, arguments: list[bytes]) -> bool:
    try:
        return (process / "cwd").samefile(data_dir)
    except PermissionError:
        # Containers often deny root the right to look into processes of other accounts; our
        # launcher names the directory on the command line, which everybody may read.
        return os.fsencode(data_dir) in arguments
    except OSError:
        return False


def _started_at_s(fields: list[str]) -> float:
    boot_lines = (_PROC / "stat").read_text().splitlines()
    booted_at_s = next(
        (int(line.split()[1]) for line in boot_lines if line.startswith("btime ")), 0
    )
    return booted_at_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_postmaster(data_dir: Path, ask: Ask, number: signal.Signals) -> PidFile | None:
    """Signal the proven server; return its claim, or None when there is nothing to signal.

    On Linux the process is pinned by a descriptor before it is proven, so that its number cannot
    pass to another process between proof and signal.
    """
    claim = read_pid_file(data_dir)
    if claim is None:
        return None
    if not hasattr(os, "pidfd_open"):
        if find_postmaster(data_dir, ask) != claim:
            return None
        with suppress(ProcessLookupError):
            os.kill(claim.pid, number)
        return claim
    try:
        pinned = os.pidfd_open(claim.pid)
    except OSError:
        return None
    try:
        if find_postmaster(data_dir, ask) != claim:
            return None
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pinned, number)
        return claim
    finally:
        os.close(pinned)
