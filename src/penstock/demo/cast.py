"""Everybody on stage: the server, the workers, the crowd. Started together, ended by their ids."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http.client import HTTPConnection, HTTPException
from time import monotonic

from penstock.demo.databases import Watch
from penstock.demo.link import CrowdLink, gather_crowd
from penstock.demo.logs import WorkerLogs
from penstock.demo.plan import WORKERS
from penstock.demo.processes import Program, clean_environment, launch
from penstock.demo.show import Show
from penstock.demo.stage import Stage, login_of

START_S = 60.0
LOGS_S = 0.25


class Cast:
    """The processes of one run, and what is watched of them."""

    def __init__(self, stage: Stage, show: Show) -> None:
        self.stage = stage
        self.show = show
        self.watch = Watch(stage, show)
        self.logs = WorkerLogs()
        self.workers: dict[str, Program] = {}
        self.port = free_port()
        self._started = 0
        self._all: list[Program] = []
        self._server: Program | None = None
        self._crowd: CrowdLink | None = None

    @property
    def server(self) -> Program:
        """The HTTP server."""
        assert self._server is not None, "started first"
        return self._server

    @property
    def crowd(self) -> CrowdLink:
        """The buyers."""
        assert self._crowd is not None, "gathered last"
        return self._crowd

    def _environ(self, login: str) -> dict[str, str]:
        return clean_environment(
            PENSTOCK_DATABASE_URL=self.stage.engine_url(login),
            PENSTOCK_LEDGER_URL=self.stage.ledger_url(login),
            PENSTOCK_JWT_SECRET=self.stage.secret,
            PENSTOCK_SERVICE_ROLE_KEY=self.stage.service_key,
            PENSTOCK_LISTEN="off",
        )

    async def start(self) -> None:
        """Start the server and the workers side by side, then the crowd."""
        self._server = await launch(
            "server",
            ("serve", "--port", str(self.port)),
            directory=self.stage.directory,
            environ=self._environ(self._login()) | {"PENSTOCK_LOG_LEVEL": "warning"},
        )
        self._all.append(self._server)
        workers = [await self.hire() for _ in range(WORKERS)]
        await asyncio.gather(self._serving(), *(self._working(worker) for worker in workers))
        self._crowd = await gather_crowd(self.stage, self.show, port=self.port, server=self._server)

    async def hire(self) -> Program:
        """Start one more worker, under a login of its own."""
        login = self._login()
        worker = await launch(
            f"worker-{login}",
            ("work", "--only", "intake", "--drain-s", "2", "--parent-pid", str(os.getpid())),
            directory=self.stage.directory,
            # Every claim and confirmation is in the log: the demo counts them there.
            environ=self._environ(login) | {"PENSTOCK_LOG_LEVEL": "debug"},
        )
        self._all.append(worker)
        self.workers[login] = worker
        self.logs.watch(worker.log)
        return worker

    def _login(self) -> str:
        self._started += 1
        return login_of(self._started - 1)

    async def end(self) -> None:
        """End whatever still runs, by its id."""
        self.watch.close()
        if self._crowd is not None:
            await self._crowd.end()
        await asyncio.gather(*(program.end() for program in self._all))

    async def listen(self) -> None:
        """Keep reading the workers' logs until cancelled."""
        while True:
            self.logs.read()
            self.show.workers = self.logs.figures()
            await asyncio.sleep(LOGS_S)

    async def _serving(self) -> None:
        await self._until(self.server, lambda: answers(self.port, "/healthz"))

    async def _working(self, worker: Program) -> None:
        await self._until(worker, lambda: b"worker_started" in worker.log.read_bytes())

    async def _until(self, program: Program, condition: Callable[[], bool]) -> None:
        deadline = monotonic() + START_S
        while not await asyncio.to_thread(condition):
            if not program.is_running:
                raise program.failure("has ended")
            if monotonic() > deadline:
                raise program.failure("does not start")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def cast_of(stage: Stage, show: Show) -> AsyncIterator[Cast]:
    """Everybody, on stage for the block."""
    cast = Cast(stage, show)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cast.end)
        await cast.start()
        for loop in (cast.watch.run(), cast.listen()):
            task = asyncio.create_task(loop)
            stack.callback(task.cancel)
        yield cast


def free_port() -> int:
    """A port of the loopback address that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int, path: str) -> bool:
    """Whether the server answers a GET with 200."""
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
