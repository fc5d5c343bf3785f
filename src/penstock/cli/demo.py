"""`penstock demo`: sell out under chaos and prove it. It touches no database of yours."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic

import click

from penstock.cli.invocation import Invocation
from penstock.cli.output import Output
from penstock.demo.plan import DROPS, Plan
from penstock.demo.run import Outcome, run_demo
from penstock.demo.show import Show
from penstock.kernel.errors import WrongUsage

LINE_EVERY_S = 1.0


@click.command()
@click.option(
    "--slots",
    type=click.IntRange(DROPS, 100_000),
    default=1000,
    show_default=True,
    help="Seats, sold in five drops.",
)
@click.option(
    "--buyers",
    type=click.IntRange(DROPS, 1_000_000),
    default=50_000,
    show_default=True,
    help="Buyers, each over HTTP with a token of their own.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Order in which they come.")
@click.option("--keep", is_flag=True, help="Leave both databases running for a look afterwards.")
@click.pass_obj
def demo(invocation: Invocation, *, slots: int, buyers: int, seed: int, keep: bool) -> int:
    """Sell out over real HTTP while workers and databases are killed, then prove it.

    Two embedded Postgres servers of its own; a configured database is never used. Exit code 0
    only if nothing was oversold, lost or doubled and every invariant holds.
    """
    if buyers < slots:
        raise WrongUsage("a sale that is to sell out needs at least as many buyers as seats")
    out = invocation.out
    on_terminal = sys.stdout.isatty() and not out.as_json and not out.quiet
    viewer = Terminal(out) if on_terminal else Lines(out)
    outcome = run_demo(Plan(slots, buyers, seed), viewer, keep=keep)
    if out.as_json:
        out.data(outcome.document())
    else:
        viewer.close(outcome)
    return 0 if outcome.holds else 1


class Lines:
    """Without a terminal: a line per second and phase, and one for every fault and its outcome."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def say(self, text: str) -> None:
        """One sentence about the setting up."""
        self._out.say(text)

    @contextmanager
    def watching(self, show: Show) -> Iterator[Callable[[], None]]:
        """Follow a run."""
        told: dict[int, str] = {}
        last, phase = monotonic(), show.phase

        def draw() -> None:
            nonlocal last, phase
            for number, fault in enumerate(show.faults):
                sign = {"done": "✓", "failed": "✗"}.get(fault.state, "…")
                if told.get(number) != sign:
                    told[number] = sign
                    name = f"next: {fault.name}" if sign == "…" else fault.name
                    self._out.say(f"{_clock(show)} {sign} {name}  {fault.outcome}".rstrip())
            if show.phase != phase or monotonic() - last >= LINE_EVERY_S:
                last, phase = monotonic(), show.phase
                self._out.say(_line(show))

        yield draw

    def close(self, outcome: Outcome) -> None:
        """Print the end."""
        for line in outcome.show.proof:
            click.echo(line)
        for line in outcome.kept:
            click.echo(line)


class Terminal(Lines):
    """On a terminal: one picture that is drawn anew."""

    @contextmanager
    def watching(self, show: Show) -> Iterator[Callable[[], None]]:
        """Follow a run."""
        live = import_module("rich.live").Live(auto_refresh=False, transient=False)
        picture = import_module("penstock.demo.screen").picture
        with live:
            yield lambda: live.update(picture(show, live.console.width), refresh=True)

    def close(self, outcome: Outcome) -> None:
        """The picture stays; only what was kept is added."""
        for line in outcome.kept:
            click.echo(line)


def _clock(show: Show) -> str:
    seconds = int(show.elapsed_s)
    return f"{seconds // 60:02}:{seconds % 60:02}"


def _line(show: Show) -> str:
    sample = show.sample
    if show.proof:  # the sale is over; only the control run is still going on
        return f"{_clock(show)}   {show.phase}"
    return (
        f"{_clock(show)}   {show.phase}: free {sample.free} · reserved {sample.reserved} · "
        f"confirmed {sample.sold} of {show.plan.slots} · queue {sample.queue} · "
        f"{show.count('requests'):,} requests · {show.claims_per_s:,.0f}/s"
    )
