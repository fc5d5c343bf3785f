"""`POST /webhooks/{source}`: plain ASGI, because every microsecond is multiplied by a burst.

An unknown name and a bad signature are answered alike. `GET` is for handshakes only.
"""

import os
import re

from starlette.types import ASGIApp

from penstock.api.asgi import Message, Receive, Scope, Send, headers_of
from penstock.api.intake import body_of, respond
from penstock.api.problems import Answer, problem
from penstock.inbox.providers.daily import is_probe
from penstock.inbox.providers.scheme import Headers, Reply, Request
from penstock.inbox.receive import Reception
from penstock.kernel.http_errors import OverCapacity, RequestRefused
from penstock.kernel.lending import Lending

PREFIX = "/webhooks/"
READING_BYTES_MAX = 256 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_NOBODY = ""


class WebhookRoute:
    """Reads a delivery within bounds and hands it to the reception."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._reading_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one delivery."""
        await respond(scope, receive, send, handle=self._answer, form=problem)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        method = scope["method"]
        if method not in ("POST", "GET"):
            raise RequestRefused("webhooks are sent by POST", status=405)
        body = await self._body(scope, receive)
        if is_probe(body):
            # Daily asks before its source exists here; the answer is the same for every name.
            return _answer(Reply())
        request = Request(
            body=body,
            headers=Headers(scope["headers"]),
            method=method,
            query=scope["query_string"].decode("latin-1"),
        )
        name = scope["path"].rpartition("/")[2]
        found = name if _NAME.fullmatch(name) else _NOBODY
        return _answer(await self._reception.receive(found, request))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        held = 0

        async def counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            held += size
            self._reading_bytes += size
            if self._reading_bytes > READING_BYTES_MAX:
                raise OverCapacity
            return message

        try:
            limit = await self._reception.body_bytes_max()
            return await body_of(headers_of(scope), counted, limit)
        finally:
            self._reading_bytes -= held


def _answer(reply: Reply) -> Answer:
    headers = {"x-content-type-options": "nosniff"}
    return Answer(200, reply.body, reply.content_type, headers)


def inbox_routes(lending: Lending) -> dict[str, ASGIApp]:
    """The inbox's route, which bypasses the router."""
    reception = Reception(lending.database, events=lending.events, env=os.environ)
    return {PREFIX: WebhookRoute(reception)}
