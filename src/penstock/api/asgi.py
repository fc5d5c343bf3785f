"""The little of ASGI that the hot routes need: read a bounded body, send a small answer."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from penstock.kernel.http_errors import RequestRefused

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

JSON = "application/json"


class ClientGone(Exception):
    """The caller hung up before the request was whole; nobody waits for an answer."""


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers by lower-case name; of repeated ones the last counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The whole body; raises RequestRefused before reading more than `limit` bytes."""
    if "content-encoding" in headers:
        raise RequestRefused("compressed bodies are not read", status=415)
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > limit:
        raise too_large(limit)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def too_large(limit: int) -> RequestRefused:
    """The refusal of a body with more bytes than this."""
    return RequestRefused(f"the body is larger than {limit} bytes", status=413)


async def respond(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send one whole answer."""
    raw = raw_headers(body, content_type, headers)
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def raw_headers(
    body: bytes, content_type: str, headers: Mapping[str, str] | None
) -> list[tuple[bytes, bytes]]:
    """What every answer says of itself, and what this one says besides."""
    raw = [
        (b"content-type", content_type.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    for name, value in (headers or {}).items():
        raw.append((name.encode("latin-1"), value.encode("latin-1")))
    return raw
