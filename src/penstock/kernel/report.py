"""What a stretch of work amounted to, counted by verdict."""

from collections import Counter
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class WorkReport:
    """Counts over one run. `stale` outcomes were refused because the lease had been lost."""

    claimed: int = 0
    finished: int = 0
    retried: int = 0
    rejected: int = 0
    held: int = 0
    stale: int = 0
    released: int = 0
    abandoned: int = 0

    def __add__(self, other: "WorkReport") -> "WorkReport":
        return WorkReport(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @classmethod
    def of(cls, counts: "Counter[str]") -> "WorkReport":
        """Freeze a running count."""
        return cls(**{f.name: counts[f.name] for f in fields(cls)})
