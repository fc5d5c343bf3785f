"""The HTTP interface of an application on a real uvicorn and a port of its own."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from penstock.api.hot import HotProtocol
from penstock.api.mount import Mounted
from penstock.application import Penstock


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    application: Penstock | ASGIApp, *, hot: bool = True, keep_alive_s: int = 5
) -> AsyncIterator[str]:
    """Open the application, or one that it is mounted in, and serve it; yields the address.

    With `hot` an application of ours is served as `penstock serve` does, its hot routes by their
    own protocol.
    """
    ours = isinstance(application, Penstock)
    served = Mounted(application) if isinstance(application, Penstock) else application
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as taken:
        config = uvicorn.Config(
            served,
            http=HotProtocol if ours and hot else "auto",
            lifespan="on",
            timeout_keep_alive=keep_alive_s,
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
