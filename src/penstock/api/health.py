"""Health and metrics over HTTP: `/healthz`, `/readyz`, `/metrics`. They reveal nothing else.

The routes are part of the server's application; `HealthServer` serves them alone for a worker.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.kernel.database import Database
from penstock.kernel.errors import PenstockError
from penstock.kernel.metrics import CONTENT_TYPE, Metrics
from penstock.kernel.schema import check_installed, check_schema
from penstock.kernel.secrets import Secret
from penstock.kernel.sqlfiles import Product

READY_TIMEOUT_S = 3.0
READY_CACHE_S = 1.0

ReadyCheck = Callable[[], Awaitable[None]]


def _always() -> bool:
    return True


def database_check(database: Database, products: Iterable[Product] | None = None) -> ReadyCheck:
    """A check that the database answers and that the schema of the products fits this code.

    Without products: of every product that the database has.
    """
    wanted = None if products is None else tuple(products)

    async def check() -> None:
        async with database.connection(timeout_s=READY_TIMEOUT_S) as conn:
            if wanted is None:
                await check_installed(conn)
            else:
                await check_schema(conn, wanted)

    return check


@dataclass(slots=True)
class Health:
    """What the endpoints ask: is the process alive, can it work, what has it counted."""

    ready: ReadyCheck
    alive: Callable[[], bool] = _always
    metrics: Metrics | None = None
    metrics_key: Secret | None = None
    _answer: bool = field(default=False, init=False)
    _asked_at: float = field(default=float("-inf"), init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def routes(self) -> list[Route]:
        """The routes, to be mounted at the root."""
        return [
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/readyz", self._readyz, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]

    async def _healthz(self, _request: Request) -> Response:
        if self.alive():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failed"}, status_code=503)

    async def _readyz(self, _request: Request) -> Response:
        if await self._is_ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "unready"}, status_code=503)

    async def _is_ready(self) -> bool:
        """One question to the database at a time, and at most one per second."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= READY_CACHE_S:
                self._answer = await self._ask()
                self._asked_at = time.monotonic()
            return self._answer

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self.ready()
        except (PenstockError, TimeoutError):
            return False
        return True

    async def _metrics(self, request: Request) -> Response:
        if not self._may_read(request):
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        if self.metrics is None:
            return Response(status_code=404)
        return Response(await self.metrics.render(), media_type=CONTENT_TYPE)

    def _may_read(self, request: Request) -> bool:
        if self.metrics_key is None:
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.metrics_key.matches(token.strip())


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to the worker it belongs to."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HealthServer:
    """Serves the health routes beside a worker, in the worker's own event loop."""

    def __init__(self, health: Health, *, host: str, port: int) -> None:
        self._host = host
        self._wanted_port = port
        config = uvicorn.Config(
            Starlette(routes=health.routes()),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _QuietServer(config)
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on; differs from the wanted one when that was 0."""
        assert self._socket is not None, "start() comes first"
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Bind and serve; raises OSError when the address is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server((self._host, self._wanted_port), family=family)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))

    async def stop(self) -> None:
        """Stop serving and close the socket."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        if self._socket is not None:
            self._socket.close()
