"""Twilio: `X-Twilio-Signature`, base64 HMAC-SHA1 over the public URL and the sorted form fields.

The URL is the one that is configured at Twilio, so it comes from our configuration and never from
a Host header, which a proxy rewrites and an attacker chooses. Bodies of JSON are bound to the URL
by `bodySHA256` in its query.
"""

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from penstock.inbox.payload import Unrepresentable, parse
from penstock.inbox.providers.documents import (
    BadForm,
    as_json,
    batch,
    content_id,
    dead,
    form_document,
    form_pairs,
    usable_id,
    usable_type,
)
from penstock.inbox.providers.scheme import (
    Claimed,
    InboundEvent,
    Provider,
    Reason,
    Refused,
    Request,
    Verified,
)
from penstock.kernel.errors import BadSetting

HEADER = "x-twilio-signature"
FORM = "application/x-www-form-urlencoded"
BODY_HASH = "bodySHA256"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PORTS = {"https": 443, "http": 80}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`public_url`: the address configured at Twilio, without query."""

    public_url: str


class Twilio(Provider):
    """No timestamp is signed: only dedupe stands against a repeated delivery."""

    name = "twilio"
    hash_name = "sha1"
    timestamped = False
    signs_query = True
    headers_kept = (HEADER, "content-type")
    options_type = Options

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        super().__init__(options)
        parts = urlsplit(self.options.public_url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise BadSetting("public_url of a twilio source wants http(s)://host/path, no query")

    def claimed(self, request: Request) -> Claimed:
        """The URL with and without its default port, as Twilio is not of one mind about it."""
        code = request.headers.required(HEADER)
        fields = self._signed_fields(request)
        query = f"?{request.query}" if request.query else ""
        texts = tuple(f"{url}{query}".encode() + fields for url in self._addresses())
        return Claimed(texts, (code.encode(),))

    def _signed_fields(self, request: Request) -> bytes:
        hashes = [value for name, value in parse_qsl(request.query) if name == BODY_HASH]
        if hashes:
            # Then the body is under the signature by its hash alone, whatever its type is said to
            # be: else a captured request could be repeated as an empty form.
            actual = hashlib.sha256(request.body).hexdigest()
            if len(hashes) != 1 or not _HEX.fullmatch(hashes[0]):
                raise Refused(Reason.HEADER_MALFORMED)
            if not hmac.compare_digest(hashes[0], actual):
                raise Refused(Reason.SIGNATURE_INVALID)
            return b""
        if not request.headers.hint("content-type").startswith(FORM):
            raise Refused(Reason.SIGNATURE_INVALID)
        return signed_fields(request.body)

    def _addresses(self) -> tuple[str, ...]:
        url = self.options.public_url
        parts = urlsplit(url)
        port = _PORTS[parts.scheme]
        if parts.port is None:
            other = parts._replace(netloc=f"{parts.netloc}:{port}")
        elif parts.port == port:
            other = parts._replace(netloc=parts.netloc.removesuffix(f":{port}"))
        else:
            return (url,)
        return (url, urlunsplit(other))

    def code(self, digest: bytes) -> bytes:
        """Base64."""
        return b64encode(digest)

    def read(self, request: Request) -> Verified:
        """One event per form; JSON may tell of several."""
        if request.headers.hint("content-type").startswith(FORM):
            return Verified((_form_event(request.body),))
        return batch(request.body, _json_events(request.body))

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As Twilio signs a form. For JSON, put `json_query(body)` into the URL and sign that."""
        del at_s, event_type
        text = self.options.public_url.encode() + signed_fields(body)
        code = b64encode(hmac.digest(self.key(secret), text, "sha1")).decode()
        return {HEADER: code, "content-type": FORM}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """The status of a message."""
        status = event_type.rpartition(".")[2] or "delivered"
        return f"MessageSid={event_id}&MessageStatus={status}&To=%2B15005550006".encode()


def signed_fields(body: bytes) -> bytes:
    """Every field's name and value, by name, each pair once."""
    try:
        pairs = sorted(set(form_pairs(body)))
    except BadForm:
        raise Refused(Reason.SIGNATURE_INVALID) from None
    return b"".join(name + value for name, value in pairs)


def _form_event(body: bytes) -> InboundEvent:
    try:
        fields = form_document(body)
    except BadForm:
        return dead(body)
    for sid, status, kind in (
        ("MessageSid", "MessageStatus", "message"),
        ("MessageSid", "SmsStatus", "message"),
        ("CallSid", "CallStatus", "call"),
    ):
        if fields.get(sid) and fields.get(status):
            # A status callback repeats the sid, so the sid alone would drop the later ones.
            number = fields.get("SequenceNumber") if kind == "call" else None
            parts = (fields[sid], fields[status], number)
            identity = usable_id(":".join(part for part in parts if part)) or content_id(body)
            return InboundEvent(
                identity, usable_type(f"{kind}.{fields[status]}"), body, as_json(fields)
            )
    return InboundEvent(content_id(body), "form", body, as_json(fields))


def _json_events(body: bytes) -> tuple[InboundEvent, ...]:
    """An object is one event; an array is one per member, as Event Streams sends them."""
    try:
        value = parse(body)
    except Unrepresentable:
        return (dead(body),)
    if isinstance(value, list) and value:
        raws = msgspec.json.decode(body, type=list[msgspec.Raw])
        return tuple(
            _json_event(member, bytes(raw)) for member, raw in zip(value, raws, strict=True)
        )
    return (_json_event(value, body),)


def _json_event(member: object, raw: bytes) -> InboundEvent:
    if not isinstance(member, dict):
        return dead(raw)
    identity = usable_id(member.get("id")) or usable_id(member.get("Sid")) or content_id(raw)
    kind = usable_type(member.get("type") or member.get("EventType"))
    return InboundEvent(identity, kind, raw, raw.decode())
