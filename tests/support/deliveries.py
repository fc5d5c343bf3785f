"""Deliveries and destinations for tests of sinks."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from penstock.kernel.secrets import Secret
from penstock.outbox.envelope import Envelope
from penstock.outbox.sinks.sink import Delivery, Destination


def destination(
    kind: str, config: Mapping[str, Any] | None = None, *, secrets: Sequence[str] = ()
) -> Destination:
    """A destination of this kind."""
    return Destination("there", kind, config or {}, [Secret(text) for text in secrets])


def delivery(
    data: object = None,
    *,
    topic: str = "orders.paid",
    event_id: UUID | None = None,
    key: str | None = None,
    tenant: UUID | None = None,
    headers: Mapping[str, str] | None = None,
) -> Delivery:
    """An event on its first way out."""
    raw = msgspec.Raw(msgspec.json.encode({} if data is None else data))
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    envelope = Envelope(event_id or uuid4(), topic, "shop", at, 1, raw, key, tenant)
    return Delivery(topic, envelope, attempt=2, fence=7, headers=headers or {})
