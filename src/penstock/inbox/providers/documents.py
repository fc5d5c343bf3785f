"""From the bodies of genuine deliveries to events: their ids, their types, their payloads."""

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.inbox.payload import Unrepresentable, parse_object
from penstock.inbox.providers.scheme import InboundEvent, Verified

ID_LENGTH_MAX = 255
TYPE_LENGTH_MAX = 200
FIELDS_MAX = 1000
EVENTS_MAX = 5000
UNKNOWN_TYPE = "unknown"

Name = Callable[[dict[str, Any]], object]


def one_document(body: bytes, *, event_id: Name, event_type: Name) -> Verified:
    """The event that a JSON object tells of; dead at once where it cannot be read or named."""
    try:
        document = parse_object(body)
    except Unrepresentable:
        return Verified((dead(body),))
    identity = usable_id(event_id(document))
    kind = usable_type(event_type(document))
    if identity is None:
        return Verified((dead(body, kind),))
    return Verified((InboundEvent(identity, kind, body, body.decode()),))


def dead(raw: bytes, event_type: str = UNKNOWN_TYPE) -> InboundEvent:
    """An event that no handler can take; named by its content, so that repeats are known."""
    return InboundEvent(content_id(raw), event_type, raw, None)


def batch(body: bytes, events: Iterable[InboundEvent]) -> Verified:
    """The events of a delivery that tells of several; too many or none are one dead event."""
    found = tuple(islice(events, EVENTS_MAX + 1))
    if not 1 <= len(found) <= EVENTS_MAX:
        return Verified((dead(body),))
    return Verified(found)


def content_id(raw: bytes) -> str:
    """An id made of the content, for what has none of its own."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def usable_id(value: object) -> str | None:
    """A provider's id as text; None where it is none that can be kept."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    return value if len(value) <= ID_LENGTH_MAX else content_id(value.encode())


def usable_type(value: object) -> str:
    """A provider's type as text."""
    if not isinstance(value, str) or not value or len(value) > TYPE_LENGTH_MAX:
        return UNKNOWN_TYPE
    return value if value.isprintable() else UNKNOWN_TYPE


class BadForm(ValueError):
    """A form that cannot be read as text fields."""


def form_pairs(body: bytes) -> list[tuple[bytes, bytes]]:
    """The decoded fields of a form, in order, as bytes; blank ones count."""
    parts = [part for part in body.split(b"&") if part]
    if len(parts) > FIELDS_MAX:
        raise BadForm("too many fields")
    pairs = (part.partition(b"=") for part in parts)
    return [(_plain(name), _plain(value)) for name, _, value in pairs]


def _plain(part: bytes) -> bytes:
    return unquote_to_bytes(part.replace(b"+", b" "))


def form_document(body: bytes) -> dict[str, str]:
    """A form as an object of texts; raises BadForm for what jsonb cannot hold."""
    try:
        fields = {name.decode(): value.decode() for name, value in form_pairs(body)}
    except UnicodeDecodeError:
        raise BadForm("not UTF-8") from None
    if any("\0" in text for pair in fields.items() for text in pair):
        raise BadForm("a NUL")
    return fields


def as_json(document: object) -> str:
    """The JSON text of a document that we built."""
    return msgspec.json.encode(document).decode()
