"""WhatsApp Cloud: `X-Hub-Signature-256` over the body; one delivery tells of many events."""

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

import msgspec

from penstock.inbox.payload import Unrepresentable, parse_object
from penstock.inbox.providers.documents import (
    as_json,
    batch,
    content_id,
    dead,
    usable_id,
    usable_type,
)
from penstock.inbox.providers.scheme import (
    Claimed,
    InboundEvent,
    Provider,
    Reply,
    Request,
    Verified,
)
from penstock.kernel.secrets import Secret, matches_any

HEADER = "x-hub-signature-256"
CHALLENGE_LENGTH_MAX = 200


class _Value(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    contacts: list[msgspec.Raw] = []
    messages: list[msgspec.Raw] = []
    statuses: list[msgspec.Raw] = []


class _Change(msgspec.Struct):
    field: str
    value: msgspec.Raw


class _Entry(msgspec.Struct):
    id: str
    changes: list[msgspec.Raw] = []


class _Body(msgspec.Struct):
    entry: list[msgspec.Raw]


class _Contact(msgspec.Struct):
    wa_id: str = ""


class _Member(msgspec.Struct, rename={"sender": "from"}):
    id: str
    sender: str = ""
    type: str = "unknown"
    status: str = ""


class WhatsApp(Provider):
    """No timestamp is signed: only dedupe stands against a repeated delivery."""

    name = "whatsapp"
    timestamped = False
    headers_kept = (HEADER,)
    body_bytes_max = 3 * 1024 * 1024

    def claimed(self, request: Request) -> Claimed:
        """One header."""
        return Claimed((request.body,), (request.headers.required(HEADER).encode(),))

    def code(self, digest: bytes) -> bytes:
        """Hexadecimal after the name of the hash."""
        return b"sha256=" + digest.hex().encode()

    def handshake(self, request: Request, tokens: Sequence[Secret]) -> Reply | None:
        """`GET` with the verify token that was set at Meta wants its challenge back."""
        if request.method != "GET":
            return None
        fields = dict(parse_qsl(request.query, max_num_fields=20))
        challenge = fields.get("hub.challenge", "")
        known = matches_any(tokens, fields.get("hub.verify_token", ""))
        sound = challenge.isascii() and 0 < len(challenge) <= CHALLENGE_LENGTH_MAX
        if not known or not sound or fields.get("hub.mode") != "subscribe":
            return None
        return Reply(challenge.encode())

    def read(self, request: Request) -> Verified:
        """One event per message, per status, and per change of any other kind."""
        try:
            parse_object(request.body)
            body = msgspec.json.decode(request.body, type=_Body)
        except Unrepresentable:
            return Verified((dead(request.body),))
        except msgspec.ValidationError:
            return Verified((dead(request.body),))
        return batch(request.body, (event for raw in body.entry for event in _of_entry(bytes(raw))))

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As Meta does."""
        del at_s, event_type
        return {HEADER: self.code(hmac.digest(self.key(secret), body, "sha256")).decode()}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A message, or with an event type `status.…` a status."""
        kind, _, detail = event_type.partition(".")
        value: dict[str, object] = {
            "messaging_product": "whatsapp",
            "metadata": {"phone_number_id": "106540352242922"},
        }
        if kind == "status":
            value["statuses"] = [{"id": event_id, "status": detail or "delivered"}]
        else:
            value["contacts"] = [{"wa_id": "6591234567"}]
            value["messages"] = [{"id": event_id, "type": detail or "text", "from": "6591234567"}]
        change = {"field": "messages", "value": value}
        entry = {"id": "102290129340398", "changes": [change]}
        return as_json({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def _of_entry(raw: bytes) -> Iterator[InboundEvent]:
    try:
        entry = msgspec.json.decode(raw, type=_Entry)
    except msgspec.ValidationError:
        yield dead(raw)
        return
    for change in entry.changes:
        yield from _of_change(entry.id, bytes(change))


def _of_change(entry_id: str, raw: bytes) -> Iterator[InboundEvent]:
    try:
        change = msgspec.json.decode(raw, type=_Change)
        value = msgspec.json.decode(change.value, type=_Value)
    except msgspec.ValidationError:
        yield dead(raw)
        return
    if not value.messages and not value.statuses:
        # Another kind of change has no id of its own; its content names it.
        told = _envelope(entry_id, change.field, [("value", bytes(change.value))])
        kind = usable_type(change.field)
        yield InboundEvent(content_id(told), kind, told, told.decode())
        return
    contacts = {_decoded_contact(raw): bytes(raw) for raw in value.contacts}
    for kind, members in (("message", value.messages), ("status", value.statuses)):
        for raw in members:
            yield _Telling(entry_id, change.field, bytes(value.metadata), contacts).of(
                kind, bytes(raw)
            )


def _decoded_contact(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=_Contact).wa_id
    except msgspec.ValidationError:
        return ""


@dataclass(frozen=True, slots=True)
class _Telling:
    """What surrounds the members of one change. Of the contacts a member gets its own only."""

    entry_id: str
    field: str
    metadata: bytes
    contacts: Mapping[str, bytes]

    def of(self, kind: str, raw: bytes) -> InboundEvent:
        """The event of one message or status; dead at once where it cannot be named."""
        try:
            member = msgspec.json.decode(raw, type=_Member)
        except msgspec.ValidationError:
            return dead(self._envelope(kind, raw, b"[]"), kind)
        contact = self.contacts.get(member.sender) if kind == "message" else None
        told = self._envelope(kind, raw, b"[%s]" % (contact or b""))
        # The statuses of one message share its id, so the id alone would drop the later ones.
        detail = member.type if kind == "message" else member.status
        identity = usable_id(member.id if kind == "message" else f"{member.id}:{detail}")
        if identity is None or not member.id or not detail:
            return dead(told, kind)
        return InboundEvent(identity, usable_type(f"{kind}.{detail}"), told, told.decode())

    def _envelope(self, kind: str, raw: bytes, contacts: bytes) -> bytes:
        parts = [("metadata", self.metadata), ("contacts", contacts), (kind, raw)]
        return _envelope(self.entry_id, self.field, parts)


def _envelope(entry_id: str, field: str, parts: Sequence[tuple[str, bytes]]) -> bytes:
    """One member with what surrounded it; the member's own bytes are kept as they came."""
    head = b'{"entry":%s,"field":%s' % (msgspec.json.encode(entry_id), msgspec.json.encode(field))
    rest = b"".join(b',"%s":%s' % (name.encode(), raw) for name, raw in parts)
    return head + rest + b"}"
