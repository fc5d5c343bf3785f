"""What a buyer is told. One of these, always: an error means that the outcome is unknown."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

import msgspec


class Reserved(msgspec.Struct, frozen=True):
    """A slot is held; `again` means that this request had got it before."""

    resource_id: UUID
    reservation_id: UUID
    again: bool = False


@dataclass(frozen=True, slots=True)
class SoldOut:
    """No slot of the pool was free at some moment of the call."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The user holds as many slots of the pool as its policy allows."""


@dataclass(frozen=True, slots=True)
class NotOpen:
    """The pool is inactive, not yet open, or closed."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Free slots exist, but all are being claimed at this moment: ask again, same request id."""


ReserveAnswer: TypeAlias = Reserved | SoldOut | LimitReached | NotOpen | Busy

SOLD_OUT = SoldOut()
LIMIT_REACHED = LimitReached()
NOT_OPEN = NotOpen()
BUSY = Busy()


class State(StrEnum):
    """Where a reservation stands."""

    RESERVED = "RESERVED"
    CONFIRMED = "CONFIRMED"
    RELEASED = "RELEASED"


@dataclass(frozen=True, slots=True)
class ReservationState:
    """What is known of a reservation."""

    reservation_id: UUID
    resource_id: UUID
    pool: str
    state: State
    reserved_at: datetime | None
    hold_expires_at: datetime | None
    confirmed_at: datetime | None
