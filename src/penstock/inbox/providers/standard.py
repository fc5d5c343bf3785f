"""Standard Webhooks, and Svix, which names the same three headers `svix-*`."""

import base64

from penstock.inbox.providers.documents import as_json, content_id, one_document
from penstock.inbox.providers.scheme import (
    Claimed,
    Provider,
    Reason,
    Refused,
    Request,
    Verified,
)
from penstock.kernel.secrets import Secret
from penstock.kernel.signing import signature_headers, signing_key

VERSION = "v1,"
FAMILIES = ("webhook", "svix")


class StandardWebhooks(Provider):
    """Id and timestamp are signed: neither can be changed by whoever carries the message."""

    name = "standardwebhooks"
    headers_kept = tuple(
        f"{family}-{part}" for family in FAMILIES for part in ("id", "timestamp", "signature")
    )

    def key(self, secret: str) -> bytes:
        """Base64 after `whsec_`."""
        return signing_key(Secret(secret))

    def claimed(self, request: Request) -> Claimed:
        """All three headers of one family; several signatures are parted by spaces."""
        family = _family(request)
        codes = request.headers.required(f"{family}-signature").split(" ")
        identity = request.headers.one(f"{family}-id")
        timestamp = request.headers.one(f"{family}-timestamp")
        if not identity:
            raise Refused(Reason.SIGNATURE_MISSING)
        if not timestamp:
            raise Refused(Reason.TIMESTAMP_MALFORMED)
        text = f"{identity}.{timestamp}.".encode() + request.body
        known = tuple(code.encode() for code in codes if code.startswith(VERSION))
        return Claimed((text,), known, timestamp)

    def code(self, digest: bytes) -> bytes:
        """Base64 with its version in front."""
        return VERSION.encode() + base64.b64encode(digest)

    def read(self, request: Request) -> Verified:
        """One event per delivery; its id is the signed header."""
        identity = request.headers.hint(f"{_family(request)}-id")
        return one_document(
            request.body,
            event_id=lambda _document: identity,
            event_type=lambda document: document.get("type"),
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As the specification says; the same body gets the same id."""
        del event_type
        identity = f"msg_{content_id(body).removeprefix('sha256:')[:32]}"
        return signature_headers(
            (Secret(secret),), message_id=identity, timestamp_s=at_s, body=body
        )

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A body of the recommended form."""
        return as_json(
            {
                "type": event_type or "invoice.paid",
                "timestamp": "2026-03-01T00:00:00Z",
                "data": {"id": event_id, "amount": 1000},
            }
        ).encode()


def _family(request: Request) -> str:
    """Which three headers count; a request that mixes the families misses some of them."""
    for family in FAMILIES:
        if request.headers.one(f"{family}-signature") is not None:
            return family
    return FAMILIES[0]
