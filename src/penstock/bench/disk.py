"""How long the disk takes for a commit: what no figure that waits for one can be better than."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from time import monotonic

PAGE = bytes(8192)


class Disk:
    """Writes a page to a file, and waits until it is safe."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._latencies_s: list[float] = []

    async def sample(self) -> None:
        """Write one page; not on the loop, which others use."""
        self._latencies_s.append(await asyncio.to_thread(self._write))

    def _write(self) -> float:
        started = monotonic()
        os.pwrite(self._file, PAGE, 0)
        os.fsync(self._file)
        return monotonic() - started

    def latency_ms(self, share: float) -> float:
        """What this share of all writes did not exceed."""
        return share_of(self._latencies_s, share) * 1000


@contextmanager
def disk_of(directory: Path) -> Iterator[Disk]:
    """The disk below a directory, by a file that is gone afterwards."""
    with tempfile.TemporaryFile(dir=directory) as file:
        yield Disk(file.fileno())


def share_of(values: list[float], share: float) -> float:
    """What this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
