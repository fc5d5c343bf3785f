"""Webhooks: each event is one POST, signed the Standard Webhooks way. Needs the extra `http`.

`webhook-id` is the event's id, the same at every attempt: a receiver that remembers it sees each
event once. With several live secrets each signs, so that the receiver may change over in between.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from penstock.kernel.http_errors import AddressRefused, DownstreamFailed
from penstock.kernel.outgoing import CallLimits, Outgoing
from penstock.kernel.replies import Reply, verdict_of, verdict_of_failure
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings
from penstock.kernel.signing import signing_key
from penstock.kernel.verdict import Reject, Retry, Verdict
from penstock.outbox.sinks import pagers
from penstock.outbox.sinks.config import config_of, refused
from penstock.outbox.sinks.sink import ATTEMPT_HEADER, FENCE_HEADER, Delivery, Destination

# The receiver wants no more (410), or does not know us (401): about all deliveries, not this one.
ABOUT_US = frozenset({401, 410})
OWN_HEADERS = frozenset({"host", "content-type", "content-length", "transfer-encoding"})
OWN_PREFIXES = ("webhook-", "penstock-", "ce-")
JSON = "application/json"
PAGERS = frozenset(
    {"pagerduty", "sentry"}
)  # their key is no signing secret: it is part of the call
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a destination of this kind may say."""

    url: str
    format: Literal[
        "envelope", "cloudevents", "cloudevents-binary", "data", "pagerduty", "sentry"
    ] = "envelope"
    headers: dict[str, str] = {}
    timeout_s: float | None = None


class HttpSink:
    """Posts one event per call; how many at once is the destination's concurrency."""

    size = 1

    def __init__(self, config: Config, client: Outgoing, key: Secret | None = None) -> None:
        self.timeout_s = client.limits.timeout_s
        self._config = config
        self._client = client
        self._key = key or Secret("")

    async def open(self) -> None:
        """Connections are made when needed."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        """Post each of them."""
        return [await self._post(delivery) for delivery in deliveries]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _post(self, delivery: Delivery) -> Verdict:
        body, headers = self._message(delivery)
        try:
            reply = await self._client.post(
                self._config.url,
                body,
                message_id=str(delivery.envelope.id),
                headers={**self._config.headers, **headers},
            )
        except AddressRefused as error:
            return Reject("ADDRESS_REFUSED", error.what)
        except DownstreamFailed as error:
            return verdict_of_failure(error, keyed=True)
        return _verdict(reply)

    def _message(self, delivery: Delivery) -> tuple[bytes, Mapping[str, str]]:
        envelope = delivery.envelope
        # Producers may store anything: what is no header must not look like a broken receiver.
        headers = {n: v for n, v in (envelope.trace or {}).items() if v and _is_plain(v)}
        headers |= {ATTEMPT_HEADER: str(delivery.attempt), FENCE_HEADER: str(delivery.fence)}
        match self._config.format:
            case "envelope":
                return envelope.json(), headers | {"content-type": JSON}
            case "cloudevents":
                media_type = "application/cloudevents+json"
                return envelope.cloud_event(), headers | {"content-type": media_type}
            case "cloudevents-binary":
                attributes = {k: _visible(v) for k, v in envelope.cloud_headers().items()}
                return bytes(envelope.data), headers | attributes | {"content-type": JSON}
            case "data":
                return bytes(envelope.data), headers | {"content-type": JSON}
            case "pagerduty":
                return pagers.pagerduty(envelope, self._key)
            case "sentry":
                return pagers.sentry(envelope, self._key)


def make(destination: Destination, settings: Settings) -> HttpSink:
    """The sink of a destination; raises BadSetting, also for a URL that may not be called."""
    config = config_of(destination, Config)
    defaults = Outgoing.from_settings(settings)
    try:
        defaults.policy.check_url(config.url)
    except AddressRefused as error:
        raise refused(destination, error.what) from None
    _check_headers(destination, config.headers)
    timeout_s = settings.http_timeout_s if config.timeout_s is None else config.timeout_s
    if not 0.1 <= timeout_s <= 300:
        raise refused(destination, "timeout_s is from 0.1 to 300")
    if config.format in PAGERS:
        if not destination.secrets:
            raise refused(destination, f"the format {config.format} needs its key in secret_refs")
        unsigned = Outgoing(defaults.policy, limits=CallLimits(timeout_s))
        return HttpSink(config, unsigned, destination.secrets[0])
    secrets = destination.secrets or (
        (settings.http_signing_secret,) if settings.http_signing_secret else ()
    )
    for secret in secrets:
        signing_key(secret)  # one that cannot be decoded is found here, not at a delivery
    client = Outgoing(defaults.policy, secrets=secrets, limits=CallLimits(timeout_s))
    return HttpSink(config, client)


def _check_headers(destination: Destination, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        lower = name.lower()
        if not lower or not _NAME.issuperset(lower):
            raise refused(destination, f"{name!r} is no name of a header")
        if lower in OWN_HEADERS or lower.startswith(OWN_PREFIXES):
            raise refused(destination, f"the header {name} is set by Penstock")
        if not _is_plain(value):
            raise refused(destination, f"the header {name} holds more than printable ASCII")


def _verdict(reply: Reply) -> Verdict:
    if reply.status in ABOUT_US:
        return Retry(code=reply.code)
    return verdict_of(reply)


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _visible(value: str) -> str:
    """A header's value as CloudEvents writes it: what is not plain ASCII is percent-encoded."""
    return "".join(
        c if "!" <= c <= "~" and c not in '"%' else "".join(f"%{b:02X}" for b in c.encode())
        for c in value
    )
