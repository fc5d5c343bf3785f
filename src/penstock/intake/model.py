"""Records of the back office: pools with their counts, what prove compares, what it finds."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class PoolStats:
    """A pool: policy and counts. `stocked` is how many slots it was ever given."""

    pool_id: str
    is_active: bool
    opens_at: datetime | None
    closes_at: datetime | None
    max_per_user: int | None
    hold_s: int | None
    stocked: int
    available: int
    reserved: int
    consumed: int


@dataclass(frozen=True, slots=True)
class SoldSlot:
    """A slot that the engine calls sold: the ledger must have its ticket."""

    resource_id: UUID
    pool_id: str
    user_id: str
    reservation_id: UUID


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, of what, and how."""

    invariant: str
    subject: str
    detail: str
