"""What the inbox speaks of: sources, events as they arrive, and how each was taken in."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from penstock.kernel.ids import uuid7

QUEUE = "inbox"

Taken: TypeAlias = Literal[
    "stored",
    "duplicate",
    "conflicting_duplicate",
    "over_quota",
    "unknown_source",
    "bad_event_id",
]


@dataclass(frozen=True, slots=True)
class Source:
    """A configured sender; `id` is the webhook_id of its events. Secrets are references."""

    id: UUID
    source: str
    provider: str
    secret_refs: tuple[str, ...]
    tolerance_s: int = 300
    max_body: int = 1024 * 1024
    max_backlog: int | None = None
    timestamp_signed: bool = True
    public_url: str | None = None
    unhandled: Literal["keep", "ignore"] = "keep"
    options: dict[str, Any] = field(default_factory=dict)
    enabled: bool = True
    rotated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One verified event, ready to be stored.

    `payload` is its JSON text, None where jsonb cannot hold it: then it is stored and dead at once.
    Events split out of one delivery carry their own part as `raw_body` and share a `delivery_id`.
    """

    webhook_id: UUID
    event_id: str
    event_type: str
    raw_body: bytes = field(repr=False)
    payload: str | None = field(repr=False)
    body_sha256: bytes = field(repr=False)
    signature: str | None = field(default=None, repr=False)
    headers: str = field(default="{}", repr=False)
    content_type: str = "application/json"
    delivery_id: UUID | None = None
    id: UUID = field(default_factory=uuid7)


@dataclass(frozen=True, slots=True)
class SharedBody:
    """The whole body of a delivery that held several events."""

    delivery_id: UUID
    raw_body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """The bytes of a stored event and what verifies them; no source where it is gone."""

    id: UUID
    source: str | None
    provider: str
    raw_body: bytes = field(repr=False)
    signature: str | None = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    content_type: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Route:
    """Where events go that no handler of the application takes."""

    source: str
    pattern: str
    kind: Literal["http", "sql"]
    target: str
    secret_ref: str | None = None


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route as operators see it, in use or not."""

    source: str
    pattern: str
    kind: str
    target: str
    secret_ref: str | None
    enabled: bool


@dataclass(frozen=True, slots=True)
class DeadEvent:
    """A dead letter as operators see it; never its payload."""

    id: UUID
    webhook_id: UUID
    source: str | None
    event_id: str
    event_type: str
    attempts: int
    error_code: str | None
    error: str | None
    received_at: datetime
    dead_at: datetime


@dataclass(frozen=True, slots=True)
class DeadQuery:
    """Which dead letters are meant; None means any."""

    source: str | None = None
    webhook_id: UUID | None = None
    event_id: str | None = None
    event_type: str | None = None
    error_code: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of `webhook.metrics`."""

    metric: str
    webhook_id: UUID
    source: str | None
    provider: str
    label: str
    total: int
