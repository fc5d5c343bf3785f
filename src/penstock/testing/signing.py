"""Signed webhook requests, as the providers would send them."""

from datetime import UTC, datetime

from penstock.inbox import providers as schemes
from penstock.kernel.errors import WrongUsage

Headers = dict[str, str]


def signed(
    provider: str,
    secret: str,
    body: bytes,
    *,
    at: datetime | None = None,
    event_type: str = "",
    options: dict[str, object] | None = None,
) -> tuple[Headers, bytes]:
    """Headers and body of a request that the provider has signed, now or at an instant.

    Providers: stripe, twilio, whatsapp, daily, standardwebhooks, github, shopify, slack, hmac (a
    plain `X-Signature: sha256=…`). The same body gets the same delivery id: a redelivery, not a new
    one. `options` are the source's, such as `public_url` for twilio; `event_type` goes into a
    header where a provider puts it there.
    """
    if provider not in schemes.PROVIDERS:
        known = ", ".join(sorted(schemes.PROVIDERS))
        raise WrongUsage(f"no provider {provider!r} here; known: {known}")
    scheme = schemes.provider(provider, options)
    at_s = int((at or datetime.now(UTC)).timestamp())
    headers = scheme.sign(secret, body, at_s=at_s, event_type=event_type)
    return {"content-type": "application/json", **headers}, body
