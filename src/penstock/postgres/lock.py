"""One launcher at a time per data directory, across processes and threads."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.kernel.errors import PostgresFailed

_POLL_S = 0.05


@contextmanager
def launcher_lock(data_dir: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock file beside the data directory; a killed holder frees it at once.

    The file stays behind on purpose: removing it would let two launchers lock different files.
    """
    path = data_dir.with_name(f".{data_dir.name}.lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PostgresFailed(
            f"cannot lock {data_dir}: {error}",
            todo="choose a data directory whose parent this account can write.",
        ) from error
    try:
        _acquire(descriptor, data_dir, timeout_s)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, data_dir: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise PostgresFailed(
                    f"another process has been starting or stopping {data_dir} "
                    f"for more than {timeout_s:.0f} s",
                    todo="wait for it; its server log stands beside the data directory.",
                ) from None
            time.sleep(_POLL_S)
        else:
            return
