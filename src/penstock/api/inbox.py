"""`POST /webhooks/{source}`: verified, stored, answered.

An unknown name and a bad signature are answered alike. `GET` is for handshakes only.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from penstock.api.asgi import Message, Receive, too_large
from penstock.api.problems import Answer
from penstock.api.requests import End, HotRoute, Whole, body_of
from penstock.inbox.providers.daily import is_probe
from penstock.inbox.providers.scheme import Headers, Reply, Request
from penstock.inbox.receive import Reception
from penstock.kernel.gathering import Asker
from penstock.kernel.http_errors import OverCapacity, RequestRefused
from penstock.kernel.lending import Lending

PREFIX = "/webhooks/"
READING_BYTES_MAX = 256 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_NOBODY = ""


class WebhookRoute(HotRoute):
    """Takes a delivery within bounds and hands it to the reception."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._reading_bytes = 0

    async def limit(self) -> int:
        """What the largest source may send."""
        return await self._reception.body_bytes_max()

    async def answer(self, request: Whole) -> Answer:
        """Answer one delivery."""
        if request.method not in ("POST", "GET"):
            raise RequestRefused("webhooks are sent by POST", status=405)
        limit = await self.limit()
        if len(request.body) > limit:
            raise too_large(limit)
        if is_probe(request.body):
            # Daily asks before its source exists here; the answer is the same for every name.
            return _answer(Reply())
        return _answer(await self._reception.receive(*_delivery(request)))

    def begin(self, request: Whole, asker: Asker[Any]) -> End | None:
        """Put a genuine delivery in line; whatever else it is takes the long way."""
        if len(request.body) > self._reception.sources.body_bytes_max or is_probe(request.body):
            return None
        taken = self._reception.begin(*_delivery(request), asker)
        return None if taken is None else lambda results: _answer(taken(results))

    async def body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The body; what all callers together have sent so far is bounded too."""
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
            return await body_of(headers, counted, await self.limit())
        finally:
            self._reading_bytes -= held


def _delivery(request: Whole) -> tuple[str, Request]:
    """Whose delivery it says it is, and the delivery."""
    name = request.path.rpartition("/")[2]
    delivery = Request(
        request.body,
        Headers(request.headers),
        method=request.method,
        query=request.query.decode("latin-1"),
    )
    return name if _NAME.fullmatch(name) else _NOBODY, delivery


def _answer(reply: Reply) -> Answer:
    headers = {"x-content-type-options": "nosniff"}
    return Answer(200, reply.body, reply.content_type, headers)


def inbox_routes(lending: Lending) -> dict[str, HotRoute]:
    """The inbox's route, which bypasses the router."""
    reception = Reception(lending.database, events=lending.events, env=os.environ)
    return {PREFIX: WebhookRoute(reception)}
