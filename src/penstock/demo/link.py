"""The demo's side of the crowd: commands out, figures in."""

import asyncio
import json
from contextlib import suppress
from typing import Any

from penstock.demo.plan import CONNECTIONS, POOL, Drop, Plan
from penstock.demo.processes import Program, clean_environment, launch
from penstock.demo.promises import Promise
from penstock.demo.show import Show
from penstock.demo.stage import Stage

ANSWER_S = 120.0


class CrowdLink:
    """A running crowd; one command at a time."""

    def __init__(self, program: Program, show: Show) -> None:
        self.program = program
        self._show = show
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def ready(self) -> None:
        """Wait until every buyer's line is open."""
        await self._answer("ready")

    async def burst(
        self, drop: Drop, *, clicks: int = 1, forged: int = 0, measured: bool = True
    ) -> dict[str, Any]:
        """Let a drop's buyers loose; returns when all have their answer."""
        self.command(
            kind="burst",
            first=drop.first_buyer,
            count=drop.buyers,
            clicks=clicks,
            forged=forged,
            measured=measured,
        )
        return await self._answer("over")

    async def again(self) -> dict[str, Any]:
        """Let everybody with a seat ask once more."""
        self.command(kind="again")
        return await self._answer("over")

    async def until(self, requests: int) -> None:
        """Wait until so many requests have been answered in all."""
        async with self._news, asyncio.timeout(ANSWER_S):
            await self._news.wait_for(lambda: self._show.count("requests") >= requests)

    async def report(self) -> tuple[list[Promise], list[str]]:
        """Who was told which seat, and answers that should not have come."""
        self.command(kind="report")
        told = await self._answer("report")
        return [Promise(user, seat) for user, seat in told["promises"]], told["odd"]

    async def end(self) -> None:
        """Send the crowd home."""
        self._reading.cancel()
        if self.program.process.stdin is not None:
            self.program.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.program.process.wait(), 2.0)
        await self.program.end()

    def command(self, **values: object) -> None:
        """Write one line to the crowd."""
        assert self.program.process.stdin is not None, "launched with pipes"
        self.program.process.stdin.write(json.dumps(values).encode() + b"\n")

    async def _answer(self, kind: str) -> dict[str, Any]:
        try:
            found = await asyncio.wait_for(self._answers.get(), ANSWER_S)
        except TimeoutError:
            raise self.program.failure("does not answer") from None
        if found["kind"] != kind:
            raise self.program.failure("has ended")
        return found

    async def _read(self) -> None:
        assert self.program.process.stdout is not None, "launched with pipes"
        while line := await self.program.process.stdout.readline():
            message = json.loads(line)
            if message["kind"] == "figures":
                self._show.crowd = message
                async with self._news:
                    self._news.notify_all()
            else:
                self._answers.put_nowait(message)
        self._answers.put_nowait({"kind": "gone"})


async def gather_crowd(stage: Stage, show: Show, *, port: int, server: Program) -> CrowdLink:
    """Start the crowd's process and let it connect."""
    plan: Plan = show.plan
    program = await launch(
        "crowd",
        (),
        directory=stage.directory,
        environ=clean_environment(),
        module="penstock.demo.crowd",
        piped=True,
    )
    link = CrowdLink(program, show)
    link.command(  # its settings come first
        port=port,
        pool=POOL,
        secret=stage.secret,
        forged_secret=stage.service_key,
        seed=plan.seed,
        connections=min(CONNECTIONS, max(8, plan.buyers // 20)),
        server_pid=server.pid,
    )
    await link.ready()
    return link
