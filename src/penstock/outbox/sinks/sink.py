"""What every sink is: opened once, given deliveries, and never raising for what they meet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.kernel.secrets import Secret
from penstock.kernel.verdict import Verdict
from penstock.outbox.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Destination:
    """A row of `outbox_destinations`, with the secrets its references lead to."""

    name: str
    kind: str
    config: Mapping[str, Any]
    secrets: Sequence[Secret] = ()
    concurrency: int = 8
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one destination.

    The envelope's id is the same at every attempt. `fence` grows with every lease of the delivery,
    so that a receiver which remembers the highest can refuse a late one.
    """

    envelope: Envelope
    attempt: int
    fence: int
    headers: Mapping[str, str]


class Sink(Protocol):
    """Takes up to `size` deliveries in one call and answers for each of them in order.

    What a delivery meets is a verdict: Done, Retry, Reject or Unknown. What is raised is a fault of
    ours; the deliveries are then tried again.
    """

    size: int

    async def open(self) -> None:
        """Connect, where there is something to connect to; safe to repeat."""
        ...

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Verdict]:
        """Send them, in this order, and say what came of each."""
        ...

    async def close(self) -> None:
        """Send what is buffered and let go of every connection; safe to repeat."""
        ...
