"""Signed webhook requests, as the providers would send them."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from penstock.kernel.errors import WrongUsage

Headers = dict[str, str]


def signed(
    provider: str, secret: str, body: bytes, *, at: datetime | None = None
) -> tuple[Headers, bytes]:
    """Headers and body of a request that the provider has signed, now or at an instant.

    Providers: stripe, standardwebhooks, github, slack, shopify, whatsapp, hmac (a plain
    `X-Signature: sha256=…`). The same body gets the same delivery id: a redelivery, not a new one.
    """
    sign = _SIGNERS.get(provider)
    if sign is None:
        raise WrongUsage(f"no provider {provider!r} here; known: {', '.join(sorted(_SIGNERS))}")
    timestamp = str(int((at or datetime.now(UTC)).timestamp()))
    return {"content-type": "application/json", **sign(secret, body, timestamp)}, body


def _mac(secret: bytes, content: bytes) -> bytes:
    return hmac.new(secret, content, hashlib.sha256).digest()


def _delivery(body: bytes) -> str:
    return str(UUID(bytes=hashlib.sha256(body).digest()[:16]))


def _stripe(secret: str, body: bytes, timestamp: str) -> Headers:
    mac = _mac(secret.encode(), timestamp.encode() + b"." + body)
    return {"stripe-signature": f"t={timestamp},v1={mac.hex()}"}


def _standard(secret: str, body: bytes, timestamp: str) -> Headers:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    identity = f"msg_{_delivery(body)}"
    mac = _mac(key, f"{identity}.{timestamp}.".encode() + body)
    return {
        "webhook-id": identity,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }


def _github(secret: str, body: bytes, _timestamp: str) -> Headers:
    return {
        "x-github-delivery": _delivery(body),
        "x-hub-signature-256": f"sha256={_mac(secret.encode(), body).hex()}",
    }


def _slack(secret: str, body: bytes, timestamp: str) -> Headers:
    mac = _mac(secret.encode(), b"v0:" + timestamp.encode() + b":" + body)
    return {"x-slack-request-timestamp": timestamp, "x-slack-signature": f"v0={mac.hex()}"}


def _shopify(secret: str, body: bytes, _timestamp: str) -> Headers:
    mac = base64.b64encode(_mac(secret.encode(), body)).decode()
    return {"x-shopify-hmac-sha256": mac, "x-shopify-webhook-id": _delivery(body)}


def _whatsapp(secret: str, body: bytes, _timestamp: str) -> Headers:
    return {"x-hub-signature-256": f"sha256={_mac(secret.encode(), body).hex()}"}


def _plain(secret: str, body: bytes, _timestamp: str) -> Headers:
    return {"x-signature": f"sha256={_mac(secret.encode(), body).hex()}"}


_SIGNERS: dict[str, Callable[[str, bytes, str], Headers]] = {
    "stripe": _stripe,
    "standardwebhooks": _standard,
    "github": _github,
    "slack": _slack,
    "shopify": _shopify,
    "whatsapp": _whatsapp,
    "hmac": _plain,
}
