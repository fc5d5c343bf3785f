"""The schemes by which senders sign their webhooks, one file each; the registry names them."""

from collections.abc import Mapping

from penstock.inbox.providers.daily import Daily
from penstock.inbox.providers.generic import GenericHmac
from penstock.inbox.providers.github import GitHub
from penstock.inbox.providers.scheme import Provider
from penstock.inbox.providers.shopify import Shopify
from penstock.inbox.providers.slack import Slack
from penstock.inbox.providers.standard import StandardWebhooks
from penstock.inbox.providers.stripe import Stripe
from penstock.inbox.providers.twilio import Twilio
from penstock.inbox.providers.whatsapp import WhatsApp
from penstock.kernel.errors import NotFound

__all__ = ["PROVIDERS", "Provider", "provider"]

_SCHEMES: tuple[type[Provider], ...] = (
    Daily,
    GenericHmac,
    GitHub,
    Shopify,
    Slack,
    StandardWebhooks,
    Stripe,
    Twilio,
    WhatsApp,
)
PROVIDERS: Mapping[str, type[Provider]] = {scheme.name: scheme for scheme in _SCHEMES}


def provider(name: str, options: Mapping[str, object] | None = None) -> Provider:
    """The scheme of that name, configured; raises NotFound or BadSetting."""
    scheme = PROVIDERS.get(name)
    if scheme is None:
        raise NotFound(f"no provider {name!r} here; known: {', '.join(sorted(PROVIDERS))}")
    return scheme(options)
