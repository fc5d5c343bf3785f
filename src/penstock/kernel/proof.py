"""What a proof is made of: invariants, what breaks them, and a second look before it is said."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

# Longer than any statement of ours takes: what is still there afterwards is no passing state.
SECOND_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, of what, and how."""

    invariant: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class Proof:
    """The invariants looked at (number to sentence), those that could not be, and offenders."""

    invariants: Mapping[str, str]
    violations: Sequence[Violation] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.violations

    def of(self, invariant: str) -> list[Violation]:
        """What breaks one invariant."""
        return [found for found in self.violations if found.invariant == invariant]


async def confirmed(
    look: Callable[[], Awaitable[Sequence[Violation]]], *, pause_s: float = SECOND_LOOK_S
) -> list[Violation]:
    """The violations that a second look finds again; a live system passes through states.

    Offenders are recognised by invariant and subject: the wording may change between looks.
    """
    first = {(found.invariant, found.subject) for found in await look()}
    if not first:
        return []
    await asyncio.sleep(pause_s)
    return [found for found in await look() if (found.invariant, found.subject) in first]
