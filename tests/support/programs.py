"""Real processes of the command line, watched and ended by their id."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

LOOK_EVERY_S = 0.02


class Program:
    """A running `python -m …`; its output goes to a file, so that it can be read at any time."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environ: Mapping[str, str],
        *,
        module: str = "penstock",
    ) -> None:
        self.log = directory / "output.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=directory,
                env={**os.environ, **environ},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    def until(self, condition: Callable[[], object], what: str, within_s: float = 20.0) -> None:
        """Return when the condition holds; fail when the program ends or the time is up."""
        deadline = time.monotonic() + within_s
        while not condition():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.output}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.output}"
            time.sleep(LOOK_EVERY_S)

    def stop(self, how: int = signal.SIGTERM, within_s: float = 20.0) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(how)
        return self.process.wait(within_s)

    def children(self) -> list[int]:
        """The processes it has started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@contextmanager
def running(
    arguments: Sequence[str],
    directory: Path,
    environ: Mapping[str, str] | None = None,
    *,
    module: str = "penstock",
) -> Iterator[Program]:
    """A program that is ended, one way or the other, when the block ends."""
    program = Program(arguments, directory, environ or {}, module=module)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def until_gone(pids: Sequence[int], within_s: float = 15.0) -> None:
    """Return when none of these processes is left; fail when the time is up."""
    deadline = time.monotonic() + within_s
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(LOOK_EVERY_S)
