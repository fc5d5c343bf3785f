"""Daily: `X-Webhook-Signature`, base64 over `timestamp.body`; the secret itself is base64."""

import base64
import binascii
import hmac
from collections.abc import Sequence

from penstock.inbox.providers.documents import as_json, one_document
from penstock.inbox.providers.scheme import (
    Claimed,
    Provider,
    Reason,
    Refused,
    Reply,
    Request,
    Verified,
)
from penstock.kernel.errors import BadSetting
from penstock.kernel.secrets import Secret

HEADER = "x-webhook-signature"
TIMESTAMP = "x-webhook-timestamp"
PROBES = frozenset({b'{"test":"test"}', b'{"test": "test"}'})


class Daily(Provider):
    """The timestamp is signed. A probe comes before the secret is known, hence unsigned."""

    name = "daily"
    headers_kept = (HEADER, TIMESTAMP)

    def key(self, secret: str) -> bytes:
        """The secret, decoded."""
        try:
            return base64.b64decode(secret, validate=True)
        except (binascii.Error, ValueError):
            raise BadSetting("the secret of a daily source must be base64") from None

    def claimed(self, request: Request) -> Claimed:
        """Signature and time stand in two headers."""
        code = request.headers.required(HEADER)
        timestamp = request.headers.one(TIMESTAMP)
        if timestamp is None:
            raise Refused(Reason.TIMESTAMP_MALFORMED)
        return Claimed((f"{timestamp}.".encode() + request.body,), (code.encode(),), timestamp)

    def code(self, digest: bytes) -> bytes:
        """Base64."""
        return base64.b64encode(digest)

    def handshake(self, request: Request, tokens: Sequence[Secret]) -> Reply | None:
        """The probe wants a 200 and nothing else."""
        del tokens
        return Reply() if is_probe(request.body) else None

    def read(self, request: Request) -> Verified:
        """One event per delivery."""
        return one_document(
            request.body,
            event_id=lambda document: document.get("id"),
            event_type=lambda document: document.get("type"),
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As Daily does."""
        del event_type
        digest = hmac.digest(self.key(secret), f"{at_s}.".encode() + body, "sha256")
        return {HEADER: base64.b64encode(digest).decode(), TIMESTAMP: str(at_s)}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A participant who joined."""
        return as_json(
            {
                "version": "1.0.0",
                "type": event_type or "participant.joined",
                "id": event_id,
                "payload": {"room": "consultation", "session_id": "sess_123"},
                "event_ts": 1772323200.25,
            }
        ).encode()


def is_probe(body: bytes) -> bool:
    """Whether this is the body by which Daily looks for a live endpoint."""
    return body.strip() in PROBES
