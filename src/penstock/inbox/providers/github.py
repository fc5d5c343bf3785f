"""GitHub: `X-Hub-Signature-256: sha256=…` over the body; id and event name in unsigned headers."""

import hmac
from uuid import UUID

import msgspec

from penstock.inbox.providers.documents import as_json, content_id, one_document
from penstock.inbox.providers.scheme import (
    Claimed,
    Headers,
    Provider,
    Reply,
    Request,
    Verified,
)
from penstock.inbox.providers.unsigned import ByHeaderOrBody, delivery_id

HEADER = "x-hub-signature-256"
EVENT = "x-github-event"
DELIVERY = "x-github-delivery"


class GitHub(Provider):
    """No timestamp, and the delivery id is not signed: see the option `event_id`."""

    name = "github"
    timestamped = False
    headers_kept = (HEADER, EVENT, DELIVERY)
    options_type = ByHeaderOrBody

    def claimed(self, request: Request) -> Claimed:
        """One header; the older SHA-1 one is not looked at."""
        return Claimed((request.body,), (request.headers.required(HEADER).encode(),))

    def code(self, digest: bytes) -> bytes:
        """Hexadecimal after the name of the hash."""
        return b"sha256=" + digest.hex().encode()

    def read(self, request: Request) -> Verified:
        """One event per delivery, of the type `event.action`; a ping is answered only."""
        headers = request.headers
        if headers.hint(EVENT) == "ping":
            return Verified(reply=Reply(b"pong"))
        return one_document(
            request.body,
            event_id=lambda _: delivery_id(self.options, request, DELIVERY),
            event_type=lambda document: _type(headers, document.get("action")),
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As GitHub does; the same body gets the same delivery id."""
        del at_s
        code = self.code(hmac.digest(self.key(secret), body, "sha256")).decode()
        delivery = str(UUID(content_id(body).removeprefix("sha256:")[:32]))
        return {HEADER: code, EVENT: event_type.partition(".")[0] or "push", DELIVERY: delivery}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A push, or another event by its action."""
        _, _, action = event_type.partition(".")
        document = {
            "ref": "refs/heads/main",
            "after": event_id,
            "repository": {"full_name": "octo-org/octo-repo"},
            "sender": {"login": "octocat"},
            "action": action or msgspec.UNSET,
        }
        return as_json({name: v for name, v in document.items() if v is not msgspec.UNSET}).encode()


def _type(headers: Headers, action: object) -> str:
    event = headers.hint(EVENT)
    return f"{event}.{action}" if event and isinstance(action, str) else event
