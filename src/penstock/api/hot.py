"""The hot routes without ASGI: a connection that sends only claims or webhooks is answered here.

A request that arrives in one piece, as those of a burst do, is parsed, answered by its route and
written back with neither scope nor messages in between. The parser is the server's own. Whatever is
not of that kind (another path, another method, a body still on its way, two requests at once) hands
the connection over to uvicorn, for good; both ways run the same routes and give the same answers.
"""

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol, cast

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.api.asgi import raw_headers
from penstock.api.problems import Answer
from penstock.api.requests import End, HotRoute, Whole
from penstock.kernel.errors import PenstockError

_METHOD = b"POST "
_VERSION = "1.1"
_NOT_HERE = frozenset(
    (b"connection", b"content-encoding", b"expect", b"transfer-encoding", b"upgrade")
)
_KEEP_ALIVE = b"keep-alive"
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Hot(Protocol):
    """The application, as far as this needs it."""

    def hot_route(self, path: str) -> HotRoute | None:
        """The route of a path that is answered without ASGI, if there is one."""
        ...


class _Asked:
    """A request in line. It is told what came of it, as a future would be, but at once."""

    __slots__ = ("_connection", "_gone", "end", "request", "route")

    def __init__(self, connection: "HotProtocol", route: HotRoute, request: Whole) -> None:
        self._connection = connection
        self._gone = False
        self.route = route
        self.request = request
        self.end: End

    def done(self) -> bool:
        """Whether the caller has hung up."""
        return self._gone

    def cancel(self) -> None:
        """The caller has hung up: what has not been sent is dropped."""
        self._gone = True

    def set_result(self, result: Any) -> None:
        """What came of it."""
        self._connection.told(self, result)

    def set_exception(self, exception: Exception) -> None:
        """What went wrong."""
        self._connection.told_error(self, exception)


class _Heads:
    """The heads of answers, each put together once a second: the date is all that changes."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._defaults: list[tuple[bytes, bytes]] = []
        self._known: dict[tuple[int, str, int], bytes] = {}

    def of(self, answer: Answer) -> bytes:
        """All that goes before the body."""
        if self._state.default_headers is not self._defaults:
            self._defaults = self._state.default_headers
            self._known.clear()
        if answer.headers:
            return self._made(answer)
        kind = (answer.status, answer.content_type, len(answer.body))
        head = self._known.get(kind)
        if head is None:
            head = self._known[kind] = self._made(answer)
        return head

    def _made(self, answer: Answer) -> bytes:
        own = raw_headers(answer.body, answer.content_type, answer.headers)
        lines = [b"%s: %s\r\n" % pair for pair in (*self._defaults, *own)]
        return b"".join((_STATUS_LINES[answer.status], *lines, b"\r\n"))


@lru_cache(maxsize=1)
def _heads_of(state: ServerState) -> _Heads:
    """One for all connections of a server."""
    return _Heads(state)


class HotProtocol(asyncio.Protocol):
    """One connection, until it is handed over."""

    def __init__(
        self,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._app = cast(Hot, config.app)
        self._heads = _heads_of(server_state)
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._idle: asyncio.TimerHandle | None = None
        self._seen_at = 0.0
        self._answering: asyncio.Future[Any] | _Asked | None = None
        self._early = b""
        self._closing = False
        self._stuffed = False
        self._path = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._messages = self._begun = 0
        self._is_odd = False

    # the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Known to the server from now on, which ends it when it stops."""
        self._transport = cast(asyncio.Transport, transport)
        self._state.connections.add(cast(Any, self))
        self._seen_at = self._loop.time()
        self._look_later(self._config.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """A claim that has not been sent is dropped with its caller."""
        del exc
        self._leave()
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        """The caller does not read its answers: it asks nothing more until it does."""
        self._transport.pause_reading()
        self._stuffed = True

    def resume_writing(self) -> None:
        """It has read them."""
        self._stuffed = False
        if not self._early and not self._transport.is_closing():
            self._transport.resume_reading()

    def shutdown(self) -> None:
        """Answer what is being answered, then close; the server calls this when it stops."""
        self._closing = True
        if self._answering is None:
            self._transport.close()

    def _leave(self) -> None:
        self._state.connections.discard(cast(Any, self))
        if self._idle is not None:
            self._idle.cancel()

    def _look_later(self, after_s: float) -> None:
        self._idle = self._loop.call_later(after_s, self._look)

    def _look(self) -> None:
        """Close a connection that has been idle; one timer a connection, not one a request."""
        idle_s = self._loop.time() - self._seen_at
        left_s = self._config.timeout_keep_alive - idle_s
        if self._stuffed and left_s <= 0:
            self._transport.abort()  # to close it would wait until its answers are read
        elif self._answering is None and left_s <= 0:
            self._transport.close()
        else:
            self._look_later(max(left_s, 0.05))

    # requests

    def data_received(self, data: bytes) -> None:
        """Answer a whole request of a hot route; anything else is not for us."""
        self._seen_at = self._loop.time()
        if self._answering is not None:
            self._early += data
            self._transport.pause_reading()
            return
        request = self._whole(data) if data.startswith(_METHOD) else None
        route = self._app.hot_route(request.path) if request is not None else None
        if request is None or route is None or self._closing:
            self._hand_over(data)
            return
        self._state.total_requests += 1
        self._start(route, request)

    def _whole(self, data: bytes) -> Whole | None:
        """The request, if this is exactly one and it is plain; nothing of it is kept otherwise."""
        self._path, self._headers, self._body = b"", [], b""
        self._messages = self._begun = 0
        self._is_odd = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            return None
        if self._begun != 1 or self._messages != 1 or self._is_odd:
            return None
        if self._parser.get_http_version() != _VERSION:
            return None
        path, _, query = self._path.partition(b"?")
        if b"%" in path or not path.startswith(b"/"):
            return None
        return Whole("POST", path.decode("latin-1"), query, self._headers, self._body)

    def _hand_over(self, data: bytes) -> None:
        self._leave()
        if self._stuffed:
            self._transport.resume_reading()  # uvicorn does not know that it was we who paused
        server = HttpToolsProtocol(self._config, self._state, self._app_state, self._loop)
        self._transport.set_protocol(server)
        server.connection_made(self._transport)
        if self._closing:
            server.shutdown()
        server.data_received(data)

    def _start(self, route: HotRoute, request: Whole) -> None:
        asked = _Asked(self, route, request)
        try:
            end = route.begin(request, asked)
        except PenstockError as error:
            self._write(route.failed(error))
            return
        if end is None:
            self._start_anew(route, request)
            return
        asked.end = end
        self._answering = asked

    def _start_anew(self, route: HotRoute, request: Whole) -> None:
        """The long way, which knows every kind of request."""
        self._answering = self._loop.create_task(route.settled(request))
        self._answering.add_done_callback(self._settled)

    def told(self, asked: _Asked, result: Any) -> None:
        """Answer the request in line by what came of it."""
        try:
            answer = asked.end(result)
        except Exception as error:
            self.told_error(asked, error)
            return
        if answer is None:
            self._start_anew(asked.route, asked.request)
        else:
            self._write(answer)
            self._next()

    def told_error(self, asked: _Asked, error: Exception) -> None:
        """Answer it by what went wrong; a fault of ours is not the business of others in line."""
        try:
            answer = asked.route.failed(error)
        except Exception as fault:
            self._cut_off(fault)
            return
        self._write(answer)
        self._next()

    def _settled(self, task: "asyncio.Future[Answer]") -> None:
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            self._cut_off(fault)
            return
        self._write(task.result())
        self._next()

    def _cut_off(self, fault: BaseException) -> None:
        """A fault of ours: the log has it, and a caller that finds itself cut off asks again."""
        self._transport.close()
        told = {"message": "a request could not be answered", "exception": fault, "protocol": self}
        self._loop.call_exception_handler(told)

    def _next(self) -> None:
        self._answering = None
        self._seen_at = self._loop.time()
        if self._transport.is_closing():
            return
        if self._closing:
            self._transport.close()
        elif self._early:
            early, self._early = self._early, b""
            self._transport.resume_reading()
            # Two requests at once are no burst's way; uvicorn knows how to queue them.
            self._hand_over(early)

    def _write(self, answer: Answer) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._heads.of(answer) + answer.body)

    # what the parser finds

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        """Its target, or a part of it."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        self._headers.append((name, value))
        if name in _NOT_HERE and not (name == b"connection" and value.lower() == _KEEP_ALIVE):
            self._is_odd = True

    def on_body(self, body: bytes) -> None:
        """Its body, or a part of it."""
        self._body += body

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._messages += 1
