"""What the outbox speaks of: publish options, and headers that are decoded when asked for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TypeAlias, TypedDict
from uuid import UUID

import msgspec

Json: TypeAlias = (
    "dict[str, Json] | list[Json] | Mapping[str, Json] | str | int | float | bool | None"
)

QUEUE = "outbox"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_decode = msgspec.json.Decoder(dict[str, str], strict=False).decode


class PublishOptions(TypedDict, total=False):
    """What may be said about an event besides its payload.

    Events of one `ordering_key` (and tenant) are handled one after the other, in the order of their
    publication; the first that fails for good holds up the ones behind it.
    A `dedupe_key` names the fact: published again within a month with the same payload, it gives
    the id of the first event and adds none; with another payload, it raises KeyReused.
    """

    ordering_key: str
    dedupe_key: str
    deliver_at: datetime
    tenant: UUID
    headers: Mapping[str, str]
    autocommit_ok: bool


@dataclass(frozen=True, slots=True)
class StoryAttempt:
    """How one attempt ended that did not deliver the event."""

    epoch: int
    ended_at: datetime
    outcome: str
    error_code: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StoryDelivery:
    """One delivery of an event that has several routes."""

    id: UUID
    route: str
    state: str
    total_attempts: int
    delivered_at: datetime | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """Everything known about one event. `attempts` are the unsuccessful ones, in order."""

    id: UUID
    topic: str
    state: str
    created_at: datetime
    total_attempts: int
    replay_count: int
    headers: dict[str, object]
    attempts: tuple[StoryAttempt, ...]
    deliveries: tuple[StoryDelivery, ...] = ()
    delivered_at: datetime | None = None
    dead_at: datetime | None = None
    held_at: datetime | None = None
    error_code: str | None = None
    error: str | None = None


class Headers(Mapping[str, str]):
    """The headers of a claimed event, decoded at the first look: most handlers never look."""

    __slots__ = ("_decoded", "_raw")

    def __init__(self, raw: str) -> None:
        self._raw = raw
        self._decoded: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._decoded is None:
            try:
                self._decoded = _decode(self._raw)
            except msgspec.ValidationError:
                # A plain SQL producer may have stored anything under a name.
                loose = msgspec.json.decode(self._raw, type=dict[str, msgspec.Raw])
                self._decoded = {name: bytes(value).decode() for name, value in loose.items()}
        return self._decoded

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._all())})"


def headers_of(raw: str) -> Mapping[str, str]:
    """The headers of a row, from their JSON text."""
    return NO_HEADERS if raw == "{}" else Headers(raw)
