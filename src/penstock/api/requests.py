"""Requests read within bounds, and answered in the one form whatever goes wrong."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import asyncpg
import msgspec

from penstock.api import asgi
from penstock.api.asgi import ClientGone, Receive, Scope, Send, headers_of, read_body
from penstock.api.problems import Answer, problem
from penstock.kernel.eager import within
from penstock.kernel.errors import DatabaseUnreachable, PenstockError
from penstock.kernel.gathering import Asker
from penstock.kernel.http_errors import RequestRefused

BODY_TIMEOUT_S = 10.0

T = TypeVar("T")
Form = Callable[[PenstockError], Answer]
End: TypeAlias = Callable[[Any], Answer | None]


class Whole(msgspec.Struct):
    """A request that has arrived whole; header names are in lower case."""

    method: str
    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def named_headers(self, only: Collection[bytes] | None = None) -> dict[str, str]:
        """The headers by name, all or only some; of repeated ones the last counts."""
        return {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in self.headers
            if only is None or name in only
        }


class HotRoute(ABC):
    """A route that every microsecond of is multiplied by a crowd.

    It answers whole requests, and does not care whether they came over ASGI. `limit` bounds what is
    read of a body.
    """

    form: Form = staticmethod(problem)

    @abstractmethod
    async def answer(self, request: Whole) -> Answer:
        """The answer to one request, or an error that says no."""

    @abstractmethod
    async def limit(self) -> int:
        """How many bytes a body may have."""

    def begin(self, request: Whole, asker: Asker[Any]) -> End | None:
        """Begin a request of the usual kind without a task of its own; None for any other.

        `asker` is told later what came of it, and what is returned here makes that the answer; a
        None there means that `answer` has to begin anew.
        """
        del request, asker
        return None

    async def settled(self, request: Whole) -> Answer:
        """The answer to one request, whatever goes wrong."""
        return await settled(self.answer(request), self.form)

    def failed(self, error: BaseException) -> Answer:
        """The answer where something went wrong; raises what is a fault of ours."""
        return failed(error, self.form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same over ASGI."""
        await respond(scope, receive, send, handle=self._read, form=self.form)

    async def _read(self, scope: Scope, receive: Receive) -> Answer:
        body = await self.body(headers_of(scope), receive)
        path, query = scope["path"], scope["query_string"]
        return await self.answer(Whole(scope["method"], path, query, scope["headers"], body))

    async def body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The body of a request that is still on its way."""
        return await body_of(headers, receive, await self.limit())


async def settled(work: Awaitable[Answer], form: Form) -> Answer:
    """An answer; an error becomes one in the given form."""
    try:
        return await work
    except (PenstockError, asyncpg.PostgresError, TimeoutError) as error:
        return failed(error, form)


def failed(error: BaseException, form: Form) -> Answer:
    """An error as an answer in the given form; raises what is a fault of ours."""
    if isinstance(error, PenstockError):
        return form(error)
    if isinstance(error, asyncpg.PostgresError | TimeoutError):
        # The database did not say what became of it: never a false no.
        return form(DatabaseUnreachable())
    raise error


async def respond(
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    handle: Callable[[Scope, Receive], Awaitable[Answer]],
    form: Form,
) -> None:
    """Run a route and send what came of it."""
    try:
        answer = await settled(handle(scope, receive), form)
    except ClientGone:
        return
    await asgi.respond(
        send,
        answer.status,
        answer.body,
        content_type=answer.content_type,
        headers=answer.headers,
    )


async def body_of(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The body, bounded in size and time."""
    try:
        return await within(read_body(headers, receive, limit), BODY_TIMEOUT_S)
    except TimeoutError:
        raise RequestRefused("the body did not arrive in time", status=408) from None


def decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """The body as its type; raises RequestRefused with what is wrong."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(f"the body cannot be read: {error}"[:300]) from None
