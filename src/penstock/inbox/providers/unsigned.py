"""Schemes that sign the body alone: what then names an event is a choice, and the choice is here.

A header that is not signed can be changed by whoever got hold of a genuine delivery, so dedupe by
it does not stop that one. Dedupe by the body does, and drops genuine events that are equal to the
last byte. The default keeps every genuine event.
"""

from typing import Literal

import msgspec

from penstock.inbox.providers.documents import content_id
from penstock.inbox.providers.scheme import Request


class ByHeaderOrBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`event_id`: the delivery id of the header, or the hash of the body."""

    event_id: Literal["header", "body"] = "header"


def delivery_id(options: ByHeaderOrBody, request: Request, header: str) -> str:
    """What names this delivery; the body where the header is missing."""
    named = request.headers.hint(header) if options.event_id == "header" else ""
    return named or content_id(request.body)
