"""Slack: `X-Slack-Signature: v0=…` over `v0:timestamp:body`; JSON events and forms."""

import hmac

from penstock.inbox.payload import Unrepresentable, parse_object
from penstock.inbox.providers.documents import (
    BadForm,
    as_json,
    content_id,
    dead,
    form_document,
    one_document,
    usable_id,
    usable_type,
)
from penstock.inbox.providers.scheme import (
    Claimed,
    InboundEvent,
    Provider,
    Reason,
    Refused,
    Reply,
    Request,
    Verified,
)

HEADER = "x-slack-signature"
TIMESTAMP = "x-slack-request-timestamp"
FORM = "application/x-www-form-urlencoded"
CHALLENGE_LENGTH_MAX = 1000


class Slack(Provider):
    """The timestamp is signed. Slash commands and interactions come as forms."""

    name = "slack"
    headers_kept = (HEADER, TIMESTAMP, "content-type")

    def claimed(self, request: Request) -> Claimed:
        """Signature and time stand in two headers."""
        code = request.headers.required(HEADER)
        timestamp = request.headers.one(TIMESTAMP)
        if timestamp is None:
            raise Refused(Reason.TIMESTAMP_MALFORMED)
        text = f"v0:{timestamp}:".encode() + request.body
        return Claimed((text,), (code.encode(),), timestamp)

    def code(self, digest: bytes) -> bytes:
        """Hexadecimal after the version."""
        return b"v0=" + digest.hex().encode()

    def read(self, request: Request) -> Verified:
        """One event per delivery; the verification of the address is answered only."""
        if request.headers.hint("content-type").startswith(FORM):
            return Verified((_form_event(request.body),))
        challenge = _challenge(request.body)
        if challenge is not None:
            return Verified(reply=Reply(challenge.encode()))
        return one_document(
            request.body,
            event_id=lambda document: document.get("event_id"),
            event_type=lambda document: (
                document["event"].get("type")
                if isinstance(document.get("event"), dict)
                else document.get("type")
            ),
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As Slack does."""
        del event_type
        text = f"v0:{at_s}:".encode() + body
        code = self.code(hmac.digest(self.key(secret), text, "sha256")).decode()
        return {HEADER: code, TIMESTAMP: str(at_s)}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A message in a channel."""
        return as_json(
            {
                "type": "event_callback",
                "event_id": event_id,
                "team_id": "T061EG9R6",
                "event": {"type": event_type or "message", "channel": "C2147483705", "text": "hi"},
            }
        ).encode()


def _challenge(body: bytes) -> str | None:
    if b"url_verification" not in body:
        return None
    try:
        document = parse_object(body)
    except Unrepresentable:
        return None
    challenge = document.get("challenge")
    if document.get("type") != "url_verification" or not isinstance(challenge, str):
        return None
    return challenge if len(challenge) <= CHALLENGE_LENGTH_MAX else None


def _form_event(body: bytes) -> InboundEvent:
    """A slash command, or an interaction whose JSON stands in the field `payload`."""
    try:
        fields: dict[str, object] = dict(form_document(body))
        inner = fields.get("payload")
        if isinstance(inner, str):
            fields["payload"] = parse_object(inner.encode())
    except (BadForm, Unrepresentable):
        return dead(body)
    told = fields["payload"] if isinstance(fields.get("payload"), dict) else fields
    assert isinstance(told, dict), "one of the two is an object"
    identity = usable_id(told.get("trigger_id")) or content_id(body)
    kind = "command" if "command" in fields else usable_type(told.get("type"))
    return InboundEvent(identity, kind, body, as_json(fields))
