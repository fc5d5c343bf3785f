"""Events to NATS JetStream, each with its id as `Nats-Msg-Id`. Needs the extra `nats`.

The stream drops a message whose id it has seen within its duplicate window, so that a repetition
within it leaves one message; beyond it, one more with the same id.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from penstock.kernel.errors import MissingExtra
from penstock.kernel.secrets import Secret, mask_text
from penstock.kernel.settings import Settings
from penstock.kernel.verdict import DONE, Reject, Retry, Verdict
from penstock.outbox.sinks.config import (
    Form,
    Template,
    body_of,
    config_of,
    refused,
    template_of,
)
from penstock.outbox.sinks.sink import ATTEMPT_HEADER, FENCE_HEADER, Delivery, Destination

try:
    from nats.aio.client import Client, RawCredentials
    from nats.errors import Error, MaxPayloadError, StaleConnectionError
    from nats.js.api import Header
    from nats.js.client import JetStreamContext
    from nats.js.errors import APIError, NoStreamResponseError
except ModuleNotFoundError as error:
    raise MissingExtra(
        "a NATS destination needs nats-py", todo="pip install 'penstock[nats]'"
    ) from error

_log = logging.getLogger("penstock.nats")

SERVER = "nats://127.0.0.1:4222"
EVENT_ID_HEADER = "event_id"
TYPE_HEADER = "event_type"
PING_S = 5
LEAVE_S = 5.0
TOO_LARGE = 10054
WRONG_STREAM = 10060

_SUBJECT = re.compile(r"[^\s.*>\x00-\x1f]+(?:\.[^\s.*>\x00-\x1f]+)*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a destination of this kind may say; its secret stands in what `secret_refs` name."""

    servers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = (SERVER,)
    subject: str = "{topic}"
    stream: str | None = None
    domain: str | None = None
    format: Form = "envelope"
    user: str | None = None
    ca_file: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 5.0


class NatsSink:
    """One connection, many messages under way; each is done when the stream has stored it."""

    size = 500

    def __init__(self, config: Config, subject: Template, options: dict[str, Any]) -> None:
        self.timeout_s = 3 * config.timeout_s  # to connect, to come back, to be answered
        self._config = config
        self._subject = subject
        self._options = options
        self._opening = asyncio.Lock()
        self._here = asyncio.Event()
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._trouble = ""

    async def open(self) -> None:
        """Connect; raises ConnectionError after `timeout_s`, with the server's last word."""
        if await self._connected() is None:
            raise ConnectionError(self._away())

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        """Publish them all, then wait for the stream's word on each.

        Without an answer the message may have been stored. It is sent again with the same id, which
        the stream or the consumer knows it by, so nobody need be asked.
        """
        stream = await self._connected()
        if stream is None:
            return [Retry(reason=self._away(), code="NATS_UNREACHABLE")] * len(deliveries)
        return await asyncio.gather(*(self._publish(stream, one) for one in deliveries))

    async def close(self) -> None:
        """Leave the server; what was published has been answered for."""
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            await _leave(client)

    def _away(self) -> str:
        return f"no connection to {', '.join(self._config.servers)}; {self._trouble}".rstrip("; ")

    async def _connected(self) -> JetStreamContext | None:
        async with self._opening:
            if self._client is not None and self._client.is_closed:
                self._client = self._stream = None
            if self._client is None:
                await self._connect()
            client = self._client
        if client is not None and not client.is_connected:
            with suppress(TimeoutError):  # it reconnects by itself
                await asyncio.wait_for(self._here.wait(), self._config.timeout_s)
        return self._stream if client is not None and client.is_connected else None

    async def _connect(self) -> None:
        client = Client()
        options = {
            "servers": list(self._config.servers),
            "name": "penstock",
            "error_cb": self._on_trouble,
            "disconnected_cb": self._on_gone,
            "reconnected_cb": self._on_back,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2,
            "connect_timeout": self._config.timeout_s,
            "ping_interval": PING_S,
            **self._options,
        }
        try:
            await asyncio.wait_for(client.connect(**options), self._config.timeout_s)
        except (Error, OSError, TimeoutError) as error:
            self._trouble = self._trouble or type(error).__name__
            await _leave(client)
            return
        self._here.set()
        self._trouble = ""
        self._client = client
        self._stream = client.jetstream(domain=self._config.domain)

    async def _publish(self, stream: JetStreamContext, delivery: Delivery) -> Verdict:
        subject = self._subject.fill(delivery)
        if not _SUBJECT.fullmatch(subject):
            return Reject("NATS_SUBJECT_INVALID", f"{subject!r} is no subject to publish to")
        body, media_type = body_of(delivery.envelope, self._config.format)
        try:
            await stream.publish(
                subject,
                body,
                timeout=self._config.timeout_s,
                stream=self._config.stream,
                headers=_headers(delivery, media_type),
            )
        except (Error, OSError, TimeoutError) as error:
            return self._verdict(error, subject)
        self._trouble = ""
        return DONE  # also when the stream says it is a duplicate: then it has the first

    def _verdict(self, error: Exception, subject: str) -> Verdict:
        if isinstance(error, MaxPayloadError):
            return Reject("NATS_TOO_LARGE", "larger than the server takes")
        if isinstance(error, NoStreamResponseError):
            return Retry(reason=f"no stream takes {subject}", code="NATS_NO_STREAM")
        if isinstance(error, APIError):
            told = error.description or type(error).__name__
            if error.err_code == TOO_LARGE:
                return Reject("NATS_TOO_LARGE", told)
            if error.err_code == WRONG_STREAM:
                told = f"{subject} belongs to another stream than {self._config.stream}"
                return Retry(reason=told, code="NATS_WRONG_STREAM")
            return Retry(reason=told, code=f"NATS_{error.err_code or error.code}")
        if isinstance(error, TimeoutError):
            told = f"no acknowledgement for {subject}; {self._trouble}".rstrip("; ")
            return Retry(reason=told, code="NATS_TIMEOUT")
        return Retry(reason=type(error).__name__, code="NATS_UNREACHABLE")

    async def _on_trouble(self, error: Exception) -> None:
        """Keep the server's last word: a refused publish, say, has no answer of its own."""
        said = mask_text(str(error) or type(error).__name__)
        _log.warning("nats_trouble %s", said)
        # The end of the connection that follows upon a refusal explains less than the refusal.
        if not (self._trouble and isinstance(error, OSError | StaleConnectionError)):
            self._trouble = said

    async def _on_gone(self) -> None:
        self._here.clear()

    async def _on_back(self) -> None:
        self._trouble = ""
        self._here.set()


def make(destination: Destination, settings: Settings) -> NatsSink:
    """The sink of a destination."""
    del settings
    config = config_of(destination, Config)
    if any("@" in server for server in config.servers):
        raise refused(destination, "servers hold no user or password; name them in secret_refs")
    options = _login(config, destination.secrets)
    if config.ca_file is not None:
        try:
            options["tls"] = ssl.create_default_context(cafile=config.ca_file)
        except OSError as error:
            raise refused(destination, f"ca_file cannot be read: {error.strerror}") from None
    return NatsSink(config, template_of(destination, config.subject), options)


def _login(config: Config, secrets: Sequence[Secret]) -> dict[str, Any]:
    """How to prove who we are: by what the secret looks like, and a user's password by `user`."""
    if not secrets:
        return {}
    text = secrets[0].reveal()
    if config.user is not None:
        return {"user": config.user, "password": text}
    if "BEGIN NATS USER JWT" in text:
        return {"user_credentials": RawCredentials(text)}
    if re.fullmatch(r"SU[A-Z2-7]{56}", text):
        return {"nkeys_seed_str": text}
    return {"token": text}


def _headers(delivery: Delivery, media_type: str) -> dict[str, str]:
    """The event's own headers and ours. JetStream obeys `Nats-…`, so producers may set none."""
    envelope = delivery.envelope
    own = {
        name: value
        for name, value in delivery.headers.items()
        if _NAME.fullmatch(name)
        and not name.lower().startswith("nats-")
        and not _UNPRINTABLE.search(value)
    }
    return {
        **own,
        Header.MSG_ID.value: str(envelope.id),
        EVENT_ID_HEADER: str(envelope.id),
        TYPE_HEADER: envelope.type,
        ATTEMPT_HEADER: str(delivery.attempt),
        FENCE_HEADER: str(delivery.fence),
        "content-type": media_type,
    }


async def _leave(client: Client) -> None:
    try:
        await asyncio.wait_for(client.close(), LEAVE_S)
    except (Error, OSError, TimeoutError):
        _log.warning("nats_close_failed")
