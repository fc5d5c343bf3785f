"""What every sink is: opened once, given deliveries, and never raising for what they meet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings
from penstock.kernel.verdict import Verdict
from penstock.outbox.envelope import Envelope

ATTEMPT_HEADER = "penstock-attempt"
FENCE_HEADER = "penstock-fence"


@dataclass(frozen=True, slots=True)
class Destination:
    """A row of `outbox_destinations`, with the secrets its references lead to."""

    name: str
    kind: str
    config: Mapping[str, Any]
    secrets: Sequence[Secret] = ()
    concurrency: int = 8
    rate_per_s: float | None = None
    version: int = 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one destination.

    The envelope's id is the same at every attempt. `fence` grows with every lease of the delivery,
    so that a receiver which remembers the highest can refuse a late one. `topic` is where it was
    published; the envelope's type differs where the payload was an envelope already. `headers` are
    the event's own, to be sent on.
    """

    topic: str
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


Make: TypeAlias = Callable[[Destination, Settings], Sink]
"""What each sink's module has as `make`: raises BadSetting for a wrong configuration, and
MissingExtra where its library is not installed; opens nothing."""
