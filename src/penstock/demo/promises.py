"""What buyers were told against what the ledger holds: the rules of counting, for both runs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """A user was told that a resource is theirs; also the form of a ticket."""

    user: str
    resource: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many seats were promised too often, promised and not delivered, or given twice."""

    promised: int
    tickets: int
    oversold: int
    lost: int
    double: int

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept, once."""
        return self.oversold == self.lost == self.double == 0


def judge(
    promises: Iterable[Promise], tickets: Iterable[Promise], *, seats: int, wanted_each: int
) -> Verdict:
    """Count, without trusting anything but what was answered and what is written down.

    Oversold: promises beyond one per resource, and resources beyond the seats there are. Lost:
    promises without a ticket for the same user and resource. Double: seats that a user got beyond
    what they asked for.
    """
    told = set(promises)
    held = set(tickets)
    owners = Counter(one.resource for one in told)
    users = Counter(one.user for one in told)
    # Tickets that nobody was told of fill seats too.
    resources = owners.keys() | {one.resource for one in held}
    return Verdict(
        promised=len(told),
        tickets=len(held),
        oversold=sum(count - 1 for count in owners.values()) + max(0, len(resources) - seats),
        lost=len(told - held),
        double=sum(max(0, count - wanted_each) for count in users.values()),
    )
