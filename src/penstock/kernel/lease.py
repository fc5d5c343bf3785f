"""Ownership of an item for a while: token, epoch and expiry.

The database clock alone decides who owns what. A worker only ever asks "how long do I surely still
hold this?", and measures that on its own monotonic clock from the moment before it sent the claim:
a wrong wall clock can therefore neither prolong nor cut a lease.
"""

from datetime import datetime
from time import monotonic
from uuid import UUID

from msgspec import Struct


class Lease(Struct):
    """One worker's hold on one item; `deadline` is monotonic, never later than the truth.

    `joint`: in the database it is one lease for all items of the claim.
    """

    token: UUID
    epoch: int
    expires_at: datetime
    deadline: float
    lost: bool = False
    joint: bool = False

    def remaining_s(self) -> float:
        """Seconds for which this worker surely still owns the item; 0 when lost."""
        return 0.0 if self.lost else max(0.0, self.deadline - monotonic())

    def covers(self, seconds: float) -> bool:
        """Whether an effect of up to `seconds` can start now without outliving the lease."""
        return not self.lost and self.deadline - monotonic() > seconds
