"""Events to Kafka: one message for each, keyed, with its id. Needs the extra `kafka`.

librdkafka does the work in threads of its own. One more thread fetches its reports, so that nothing
here ever blocks the event loop.
"""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from penstock.kernel.errors import MissingExtra
from penstock.kernel.settings import Settings
from penstock.kernel.verdict import DONE, Reject, Retry, Verdict
from penstock.outbox.sinks.config import (
    Form,
    Template,
    body_of,
    code_of,
    config_of,
    refused,
    template_of,
)
from penstock.outbox.sinks.sink import ATTEMPT_HEADER, FENCE_HEADER, Delivery, Destination

try:
    from confluent_kafka import KafkaError, KafkaException, Message, Producer
except ModuleNotFoundError as error:
    raise MissingExtra(
        "a Kafka destination needs confluent-kafka", todo="pip install 'penstock[kafka]'"
    ) from error

_log = logging.getLogger("penstock.kafka")

BROKER = "localhost:9092"
CLIENT_ID = "outbox-drain"
EVENT_ID_HEADER = "event_id"
TYPE_HEADER = "event_type"
POLL_S = 0.1

# What the same message would meet again, however often it is sent.
REJECTED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._INVALID_ARG,
    }
)
# Names of librdkafka's properties that a secret may set. Others of the same families load code.
SECURITY = ("security.protocol", "sasl.", "ssl.", "enable.ssl.certificate.verification")
LOADS_CODE = ("ssl.engine", "ssl.providers")
TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a destination of this kind may say; its security stands in what `secret_refs` name."""

    brokers: str | None = None
    topic: str = "{topic}"
    format: Form = "envelope"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    partitioner: Literal["murmur2_random", "consistent_random", "fnv1a_random"] = "murmur2_random"
    client_id: str = CLIENT_ID
    linger_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 2.0
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 10.0
    message_bytes_max: Annotated[int, msgspec.Meta(ge=1000, le=1_000_000_000)] = 1_000_000


@dataclass(slots=True)
class _Batch:
    """Messages under way; the last report to come in wakes whoever waits."""

    verdicts: list[Verdict | None]
    left: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Event

    def answer(self, place: int, verdict: Verdict) -> None:
        """Note one verdict; called from either thread, once for each place."""
        self.verdicts[place] = verdict
        self.left -= 1
        if self.left == 0:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                self.loop.call_soon_threadsafe(self.done.set)


class KafkaSink:
    """One idempotent producer: acknowledged by all in-sync replicas, in order for each key."""

    size = 500

    def __init__(self, properties: dict[str, Any], topic: Template, form: Form) -> None:
        self.timeout_s: float = properties["message.timeout.ms"] / 1000
        self._properties = properties
        self._topic = topic
        self._form: Form = form
        self._producer: Producer | None = None
        self._polling: threading.Thread | None = None
        self._stopping = threading.Event()
        self._counting = threading.Lock()
        self._trouble = ""
        self._fatal = False

    async def open(self) -> None:
        """Make the producer; it connects by itself, and again whenever it must."""
        if self._fatal:
            await self.close()  # an idempotent producer that has lost its place cannot go on
        if self._producer is None:
            self._fatal = False
            self._stopping = threading.Event()
            self._producer = Producer(
                {**self._properties, "error_cb": self._on_trouble}, logger=_log
            )
            self._polling = threading.Thread(
                target=_poll, args=(self._producer, self._stopping), name="penstock-kafka"
            )
            self._polling.daemon = True
            self._polling.start()

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        """Send them and wait for the report on each.

        What timed out may have been written. It is sent again with the same id rather than held:
        a consumer that looks at `event_id` sees the repetition for what it is.
        """
        await self.open()
        assert self._producer is not None, "just opened"
        batch = _Batch(
            [None] * len(deliveries),
            len(deliveries),
            asyncio.get_running_loop(),
            asyncio.Event(),
        )
        for place, delivery in enumerate(deliveries):
            topic = self._topic.fill(delivery)
            if TOPIC.fullmatch(topic):
                self._send(self._producer, topic, delivery, report=self._reporting(batch, place))
            else:
                with self._counting:
                    batch.answer(place, Reject("KAFKA_TOPIC_INVALID", f"{topic!r} is no topic"))
        await batch.done.wait()  # ends: every message has its `timeout_s`
        return [verdict for verdict in batch.verdicts if verdict is not None]

    async def close(self) -> None:
        """Wait for what is under way, as long as a message may take, and end the threads."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        # Kept from here on: another call may open the next producer while this one is flushed.
        stopping, polling = self._stopping, self._polling
        await asyncio.to_thread(producer.flush, self.timeout_s + 1)
        stopping.set()
        assert polling is not None, "started with the producer"
        await asyncio.to_thread(polling.join)

    def _send(
        self,
        producer: Producer,
        topic: str,
        delivery: Delivery,
        *,
        report: Callable[[KafkaError | None, Message | None], None],
    ) -> None:
        envelope = delivery.envelope
        body, media_type = body_of(envelope, self._form)
        headers = {
            **delivery.headers,
            EVENT_ID_HEADER: str(envelope.id),
            TYPE_HEADER: envelope.type,
            ATTEMPT_HEADER: str(delivery.attempt),
            FENCE_HEADER: str(delivery.fence),
            "content-type": media_type,
        }
        try:
            producer.produce(
                topic,
                value=body,
                key=envelope.ordering_key or str(envelope.id),
                headers=list(headers.items()),
                on_delivery=report,
            )
        except KafkaException as error:
            report(error.args[0], None)
        except BufferError:
            report(KafkaError(KafkaError._QUEUE_FULL), None)

    def _reporting(
        self, batch: _Batch, place: int
    ) -> Callable[[KafkaError | None, Message | None], None]:
        def report(error: KafkaError | None, _message: Message | None) -> None:
            verdict: Verdict
            if error is None:
                verdict, self._trouble = DONE, ""
            else:
                verdict = self._verdict(error)
            with self._counting:
                batch.answer(place, verdict)

        return report

    def _verdict(self, error: KafkaError) -> Verdict:
        code = code_of("KAFKA", error.name())
        if error.code() in REJECTED:
            return Reject(code, error.str())
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = True
        said = self._trouble if error.code() == KafkaError._MSG_TIMED_OUT else ""
        return Retry(reason=f"{error.str()}; {said}" if said else error.str(), code=code)

    def _on_trouble(self, error: KafkaError) -> None:
        """Keep what the client says of its connections: a timeout alone explains nothing."""
        self._trouble = f"{error.name()}: {error.str()}"
        self._fatal = self._fatal or error.fatal()


def make(destination: Destination, settings: Settings) -> KafkaSink:
    """The sink of a destination; brokers come from its configuration or from the settings."""
    config = config_of(destination, Config)
    properties: dict[str, Any] = {
        "bootstrap.servers": config.brokers or settings.kafka_broker or BROKER,
        "client.id": config.client_id,
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": config.compression,
        "partitioner": config.partitioner,
        "linger.ms": config.linger_ms,
        "message.timeout.ms": int(config.timeout_s * 1000),
        "message.max.bytes": config.message_bytes_max,
    }
    for secret in reversed(destination.secrets):  # the newest stands first, and has the last word
        properties |= _security(destination, secret.reveal())
    return KafkaSink(properties, template_of(destination, config.topic), config.format)


def _security(destination: Destination, text: str) -> dict[str, str]:
    """Lines `name=value` of librdkafka's security properties; anything else is refused unquoted."""
    found = {}
    for line in text.splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals or not name.startswith(SECURITY) or name.startswith(LOADS_CODE):
            raise refused(
                destination,
                "its secret has a line that is no security property of librdkafka, such as"
                " sasl.password=…",
            )
        found[name] = value
    return found


def _poll(producer: Producer, stopping: threading.Event) -> None:
    """Fetch reports until told to stop; they are handled in this thread."""
    while not stopping.is_set():
        producer.poll(POLL_S)
