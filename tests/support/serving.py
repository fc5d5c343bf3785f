"""The HTTP interface of an application on a real uvicorn and a port of its own."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from penstock.api.mount import Mounted
from penstock.application import Penstock


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(application: Penstock | ASGIApp) -> AsyncIterator[str]:
    """Open the application, or one that it is mounted in, and serve it; yields the address."""
    served = Mounted(application) if isinstance(application, Penstock) else application
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as taken:
        config = uvicorn.Config(
            served,
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[taken]))
        while not server.started:
            assert not task.done(), "the server did not start"
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
