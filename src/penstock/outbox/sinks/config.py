"""What sinks have in common: reading their configuration, filling in names, forming the message."""

from typing import Literal, TypeAlias, TypeVar

import msgspec

from penstock.kernel.errors import BadSetting
from penstock.outbox.envelope import Envelope
from penstock.outbox.sinks.sink import Delivery, Destination

C = TypeVar("C")
Form: TypeAlias = Literal["envelope", "cloudevents"]

PLACES = ("topic", "type", "tenant")
NO_TENANT = "none"
CODE_LENGTH_MAX = 60


def config_of(destination: Destination, kind: type[C]) -> C:
    """The configuration of a destination in its typed form; raises BadSetting for what is wrong."""
    try:
        return msgspec.convert(dict(destination.config), type=kind)
    except msgspec.ValidationError as error:
        raise refused(destination, f"config: {error}") from None


def refused(destination: Destination, what: str) -> BadSetting:
    """The error that names a destination and what is wrong with it."""
    return BadSetting(
        f"destination {destination.name}: {what}",
        todo="put it right with `penstock apply` or `penstock destination`.",
    )


class Template:
    """A name with places to fill in: `{topic}`, `{type}` and `{tenant}`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Raises ValueError for a place that nothing is known to fill."""
        try:
            text.format_map(dict.fromkeys(PLACES, ""))
        except (KeyError, IndexError, ValueError, AttributeError):
            known = ", ".join(f"{{{place}}}" for place in PLACES)
            raise ValueError(f"{text!r} may hold {known} and no other braces") from None
        self._text = text

    def fill(self, delivery: Delivery) -> str:
        """The name for one delivery; events without a tenant have `none` in its place."""
        envelope = delivery.envelope
        return self._text.format_map(
            {
                "topic": delivery.topic,
                "type": envelope.type,
                "tenant": str(envelope.tenant) if envelope.tenant else NO_TENANT,
            }
        )


def template_of(destination: Destination, text: str) -> Template:
    """The template, or BadSetting with the destination's name."""
    try:
        return Template(text)
    except ValueError as error:
        raise refused(destination, str(error)) from None


def body_of(envelope: Envelope, form: Form) -> tuple[bytes, str]:
    """The bytes of a message and their media type."""
    if form == "cloudevents":
        return envelope.cloud_event(), "application/cloudevents+json"
    return envelope.json(), "application/json"


def code_of(kind: str, name: str) -> str:
    """An error code of a sink, such as KAFKA_MSG_TIMED_OUT."""
    return f"{kind}_{name.strip('_').upper()}"[:CODE_LENGTH_MAX]
