"""Signs outgoing messages the Standard Webhooks way: id, timestamp and body under HMAC-SHA256."""

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256

from penstock.kernel.errors import BadSetting
from penstock.kernel.secrets import Secret

PREFIX = "whsec_"


def signing_key(secret: Secret) -> bytes:
    """The key bytes of a secret: base64 after `whsec_`, else the text itself."""
    text = secret.reveal()
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting("a signing secret that begins with whsec_ must go on in base64") from None


def signature_headers(
    secrets: Sequence[Secret], *, message_id: str, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """The three headers; with several secrets each gives a signature, so that one can change."""
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s)}
    if secrets:
        signed = f"{message_id}.{timestamp_s}.".encode() + body
        headers["webhook-signature"] = " ".join(
            "v1," + base64.b64encode(hmac.digest(signing_key(secret), signed, sha256)).decode()
            for secret in secrets
        )
    return headers
