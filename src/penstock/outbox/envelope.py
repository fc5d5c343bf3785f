"""The envelope in which events leave: one form for every sink, and its CloudEvents reading.

The schema of the JSON form is docs/reference/event-envelope.schema.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from penstock.kernel.event import Event

SPEC_VERSION = "1.0"
VERSION_HEADER = "penstock-version"
REQUIRED = ("id", "type", "source", "occurred_at", "schema_version", "data")
_TRACE = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event as it is sent. `id` is the same at every attempt: receivers deduplicate by it."""

    id: UUID
    type: str
    source: str
    occurred_at: datetime
    schema_version: int
    data: msgspec.Raw
    ordering_key: str | None = None
    tenant: UUID | None = None
    trace: Mapping[str, str] | None = None

    @classmethod
    def of(cls, event: Event[Any], *, source: str) -> "Envelope":
        """The envelope of an event. A payload that is an envelope already is not wrapped twice.

        Its id gives way to the event's: a repetition must be known by what the database knows.
        """
        trace = {name: event.headers[name] for name in _TRACE if name in event.headers}
        own = cls(
            event.id,
            event.topic,
            source,
            event.occurred_at.astimezone(UTC),
            int(event.headers.get(VERSION_HEADER, "1")),
            msgspec.Raw(event.raw),
            event.ordering_key,
            event.tenant,
            trace or None,
        )
        return own._opened() or own

    def _opened(self) -> "Envelope | None":
        try:
            inner = msgspec.json.decode(self.data, type=_Inner)
        except msgspec.ValidationError:
            return None
        return Envelope(
            self.id,
            inner.type,
            inner.source,
            inner.occurred_at.astimezone(UTC),
            inner.schema_version,
            inner.data,
            inner.ordering_key or self.ordering_key,
            self.tenant,
            self.trace,
        )

    def json(self) -> bytes:
        """The JSON form; what is not known is left out."""
        return msgspec.json.encode(_present(self, (*REQUIRED, "ordering_key", "tenant", "trace")))

    def cloud_event(self) -> bytes:
        """The same event in CloudEvents' structured JSON form."""
        body: dict[str, object] = {
            **{name.removeprefix("ce-"): value for name, value in self.cloud_headers().items()},
            "datacontenttype": "application/json",
            "data": self.data,
        }
        return msgspec.json.encode(body)

    def cloud_headers(self) -> dict[str, str]:
        """CloudEvents' binary form over HTTP: these headers, and `data` as the body.

        The ordering key is the extension `partitionkey`, the trace is distributed tracing's.
        """
        headers = {
            "ce-specversion": SPEC_VERSION,
            "ce-id": str(self.id),
            "ce-type": self.type,
            "ce-source": self.source,
            "ce-time": self.occurred_at.isoformat().replace("+00:00", "Z"),
            "ce-schemaversion": str(self.schema_version),
        }
        if self.ordering_key is not None:
            headers["ce-partitionkey"] = self.ordering_key
        if self.tenant is not None:
            headers["ce-tenant"] = str(self.tenant)
        return headers | {f"ce-{name}": value for name, value in (self.trace or {}).items()}


class _Inner(msgspec.Struct):
    """What a payload must have to be an envelope itself: all that the schema says.

    A time without a zone is no moment: each worker would read it by its own clock's zone.
    """

    id: str
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    occurred_at: Annotated[datetime, msgspec.Meta(tz=True)]
    schema_version: Annotated[int, msgspec.Meta(ge=1)]
    data: msgspec.Raw
    ordering_key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


def _present(envelope: Envelope, names: tuple[str, ...]) -> dict[str, object]:
    values = ((name, getattr(envelope, name)) for name in names)
    return {name: value for name, value in values if value is not None}
