"""`penstock top`: queues as they move. Rates are what changed between two looks."""

import asyncio
import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import Column, age, shown
from penstock.kernel import operations
from penstock.kernel.errors import MissingExtra
from penstock.kernel.operations import Pause, QueueStats, WorkerSeen
from penstock.kernel.queue import Connection

LIVE_S = 60.0
_NUMBERS = ("ready", "scheduled", "leased", "expired", "dead", "held")


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    at: float
    queues: Sequence[QueueStats]
    pauses: Sequence[Pause]
    workers: Sequence[WorkerSeen]


class Display(Protocol):
    """Where looks are shown."""

    def __enter__(self) -> "Display":
        """Begin to show."""
        ...

    def __exit__(self, *exc: object) -> None:
        """Leave the last look where it is."""
        ...

    def update(self, before: Look, now: Look) -> None:
        """Show a look, and what changed since the one before."""
        ...


@click.command()
@click.option(
    "--every", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds."
)
@click.option("--count", type=click.IntRange(1), help="Look so many times, then stop.")
@click.pass_obj
def top(invocation: Invocation, *, every: float, count: int | None) -> None:
    """Show every queue, and how fast it grows or shrinks, until Ctrl-C.

    Without a terminal, or with --json, one line for each look.
    """
    show: Display = _Lines(invocation)
    if sys.stdout.isatty() and not invocation.as_json:
        show = _Screen()
    invocation.run(_watch(invocation, show, every=every, count=count))


async def _watch(invocation: Invocation, show: Display, *, every: float, count: int | None) -> None:
    before: Look | None = None
    looks = 0
    with show as display:
        async with invocation.connection() as conn:
            while True:
                now = await look(conn)
                display.update(before or now, now)
                before, looks = now, looks + 1
                if looks == count:
                    return
                await asyncio.sleep(every)


async def look(conn: Connection) -> Look:
    """Everything at one moment."""
    return Look(
        time.monotonic(),
        await operations.queue_stats(conn),
        await operations.pauses(conn),
        await operations.workers(conn),
    )


def rows_of(before: Look, now: Look) -> list[dict[str, object]]:
    """A row for each queue; `per_s` is by how much what waits has grown, negative when it falls."""
    earlier = {queue.queue: queue for queue in before.queues}
    paused = {pause.target for pause in now.pauses}
    elapsed_s = max(now.at - before.at, 1e-9)
    rows = []
    for queue in now.queues:
        then = earlier.get(queue.queue, queue)
        grown = (queue.ready + queue.leased) - (then.ready + then.leased)
        rows.append(
            {
                "queue": queue.queue + (" (paused)" if queue.queue in paused else ""),
                **{name: getattr(queue, name) for name in _NUMBERS},
                "oldest": age(queue.oldest_age_s),
                "per_s": round(grown / elapsed_s, 1),
            }
        )
    return rows


def footer_of(look: Look) -> str:
    """Workers and pauses in one line."""
    live = sum(worker.silent_s < LIVE_S for worker in look.workers)
    silent = len(look.workers) - live
    words = f"workers: {live} live" + (f", {silent} silent" if silent else "")
    parts = [pause.target for pause in look.pauses if "/" in pause.target]
    return words + (f"   paused: {', '.join(parts)}" if parts else "")


class _Lines:
    """One line for each look, for files and pipes."""

    def __init__(self, invocation: Invocation) -> None:
        self._as_json = invocation.as_json
        self._out = invocation.out

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def update(self, before: Look, now: Look) -> None:
        """Print one look."""
        rows = rows_of(before, now)
        if self._as_json:
            self._out.data({"queues": rows, "workers": now.workers, "pauses": now.pauses})
            return
        parts = [f"{r['queue']} {r['ready']}+{r['leased']} ({r['per_s']}/s)" for r in rows]
        click.echo("  ".join(parts))


class _Screen:
    """A table that stays in its place."""

    def __init__(self) -> None:
        try:
            self._tables = importlib.import_module("rich.table")
            live = importlib.import_module("rich.live")
        except ImportError as error:
            raise MissingExtra(
                "`penstock top` needs rich", todo="pip install 'penstock[console]'"
            ) from error
        self._live = live.Live(auto_refresh=False, screen=False)

    def __enter__(self) -> "_Screen":
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(*exc)

    def update(self, before: Look, now: Look) -> None:
        """Draw one look."""
        table = self._tables.Table(box=None, header_style="bold", caption=footer_of(now))
        columns = [Column("queue"), *(Column(name, right=True) for name in _NUMBERS)]
        columns += [Column("oldest", right=True), Column("per_s", "per s", right=True)]
        for column in columns:
            table.add_column(column.title, justify="right" if column.right else "left")
        for row in rows_of(before, now):
            table.add_row(*(shown(row[column.key]) for column in columns))
        self._live.update(table, refresh=True)
