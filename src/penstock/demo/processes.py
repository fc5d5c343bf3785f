"""The processes of a run: real ones, with logs in files, ended by their id."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.kernel.errors import PenstockError

GRACE_S = 5.0


class Program:
    """A running `python -m …` of ours."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    def signal(self, which: int) -> None:
        """Send a signal, unless it has ended."""
        if self.is_running:
            with suppress(ProcessLookupError):
                self.process.send_signal(which)

    async def end(self, *, grace_s: float = GRACE_S) -> None:
        """Ask it to stop, and kill it when it does not."""
        self.signal(signal.SIGCONT)  # one that is frozen hears nothing
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), grace_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.process.wait()

    def failure(self, what: str) -> PenstockError:
        """An error that shows the end of its log."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-12:]
        return PenstockError(
            f"{self.name} {what}",
            happened="its log ends with:\n" + "\n".join(lines),
            todo="run it again; if it stays so, report it with this log.",
        )


async def launch(
    name: str,
    arguments: Sequence[str],
    *,
    directory: Path,
    environ: Mapping[str, str],
    module: str = "penstock",
    piped: bool = False,
) -> Program:
    """Start a program in a session of its own: a terminal's Ctrl-C is for the demo to handle."""
    log = directory / f"{name}.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            cwd=directory,
            env=environ,
            stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if piped else output,
            stderr=output,
            start_new_session=True,
            limit=64 * 1024 * 1024,
        )
    return Program(name, process, log)


def clean_environment(**values: str) -> dict[str, str]:
    """The environment without anything that names a database or a setting of ours."""
    dropped = ("PENSTOCK_", "PG", "DB1_", "DB2_", "DATABASE_URL", "DB_URL")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return kept | values
