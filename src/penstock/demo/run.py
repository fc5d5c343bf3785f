"""One run of the demo, from two empty directories to the proof."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from penstock.demo.acts import Acts
from penstock.demo.cast import answers, cast_of
from penstock.demo.control import Control
from penstock.demo.plan import Plan
from penstock.demo.proof import Evidence, collect, document, lines
from penstock.demo.show import Show
from penstock.demo.stage import Stage, set_up


class Viewer(Protocol):
    """Who watches: a terminal, a line per second, or nobody."""

    def say(self, text: str) -> None:
        """One sentence about the setting up."""
        ...

    def watching(self, show: Show) -> AbstractContextManager[Callable[[], None]]:
        """Follow a run; what it gives is called several times a second."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    show: Show
    evidence: Evidence
    kept: list[str]

    @property
    def holds(self) -> bool:
        """Whether the proof is complete."""
        return self.evidence.holds

    def document(self) -> dict[str, object]:
        """What --json prints."""
        return document(self.show, self.evidence)


def run_demo(plan: Plan, viewer: Viewer, *, keep: bool = False) -> Outcome:
    """Play it. Every process and directory is gone afterwards, except databases with `keep`."""
    show = Show(plan)
    # Without this a SIGTERM would leave the databases to their guards.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with set_up(keep=keep, progress=viewer.say) as stage:
            evidence = asyncio.run(_play(stage, show, viewer))
            kept = _kept(stage) if keep else []
            return Outcome(show, evidence, kept)
    finally:
        signal.signal(signal.SIGTERM, before)


async def _play(stage: Stage, show: Show, viewer: Viewer) -> Evidence:
    viewer.say("a server, three workers and the buyers: starting")
    async with cast_of(stage, show) as cast:
        base = f"http://127.0.0.1:{cast.port}"
        has_console = await asyncio.to_thread(answers, cast.port, "/console")
        show.links = [f"console {base}/console" if has_console else f"server {base}"]
        show.links += stage.psql_lines()
        with viewer.watching(show) as draw:
            async with _drawing(draw):
                acts = Acts(cast)
                await acts.play()
                show.phase = "proof"
                promises, _ = await cast.crowd.report()
                evidence = await collect(stage, show, promises, false_sold_out=acts.false_sold_out)
                show.proof = lines(show, evidence)
                await cast.end()

                def say(text: str) -> None:
                    show.phase = text
                    draw()

                evidence.control = await Control(stage, say).run()
                show.phase = "done"
                show.proof = lines(show, evidence)
                show.proof[-1] += "      " + (
                    "proof ok · exit 0" if evidence.holds else "proof failed · exit 1"
                )
            draw()
    return evidence


@asynccontextmanager
async def _drawing(draw: Callable[[], None]) -> AsyncIterator[None]:
    async def repeat() -> None:
        while True:
            draw()
            await asyncio.sleep(0.125)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


def _kept(stage: Stage) -> list[str]:
    """How to look at what was kept, and how to be rid of it."""
    pids = " ".join(str(cluster.pid) for cluster in (stage.engine, stage.ledger))
    prefix = str(stage.engine.data_dir).removesuffix(stage.engine.data_dir.name.split("-")[-1])
    sockets = f"{stage.engine_address.socket_dir} {stage.ledger_address.socket_dir}"
    return [
        *stage.psql_lines(),
        f"kill -INT {pids}   # stops both servers",
        f"rm -r {prefix}* {sockets}   # removes them",
    ]
