"""Stripe: `Stripe-Signature: t=…,v1=…` over `t.body`; the event's own id."""

import hmac

from penstock.inbox.providers.documents import as_json, one_document
from penstock.inbox.providers.scheme import (
    Claimed,
    Provider,
    Reason,
    Refused,
    Request,
    Verified,
)

HEADER = "stripe-signature"


class Stripe(Provider):
    """The timestamp is signed, so an old delivery cannot be sent again."""

    name = "stripe"
    headers_kept = (HEADER,)

    def claimed(self, request: Request) -> Claimed:
        """Read `t` and every `v1`; other versions are passed over."""
        parts = [part.partition("=") for part in request.headers.required(HEADER).split(",")]
        times = [value for name, _, value in parts if name == "t"]
        codes = [value.encode() for name, _, value in parts if name == "v1"]
        if len(times) != 1:
            raise Refused(Reason.TIMESTAMP_MALFORMED)
        text = times[0].encode() + b"." + request.body
        return Claimed((text,), tuple(codes), times[0])

    def code(self, digest: bytes) -> bytes:
        """Hexadecimal."""
        return digest.hex().encode()

    def read(self, request: Request) -> Verified:
        """One event per delivery."""
        return one_document(
            request.body,
            event_id=lambda document: document.get("id"),
            event_type=lambda document: document.get("type"),
        )

    def sign(self, secret: str, body: bytes, *, at_s: int, event_type: str = "") -> dict[str, str]:
        """As Stripe does."""
        del event_type
        digest = hmac.digest(self.key(secret), f"{at_s}.".encode() + body, "sha256")
        return {HEADER: f"t={at_s},v1={digest.hex()}"}

    def sample(self, event_id: str, event_type: str) -> bytes:
        """A payment intent."""
        return as_json(
            {
                "id": event_id,
                "object": "event",
                "type": event_type or "payment_intent.succeeded",
                "livemode": False,
                "data": {"object": {"id": "pi_12345", "object": "payment_intent", "amount": 1000}},
            }
        ).encode()
