"""When to try again: pure arithmetic, no clock, no database."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random, SystemRandom

# Shared: a generator of its own would cost each series of tries more than all the rest of it.
_RANDOM = SystemRandom()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter above the base and a hard cap, in seconds."""

    base_s: float = 1.0
    cap_s: float = 300.0
    random: Random = field(default=_RANDOM, compare=False, repr=False)

    def delay_s(self, attempt: int, *, retry_after_s: float | None = None) -> float:
        """Seconds to wait after the given attempt (1 = first); Retry-After is honoured, capped."""
        if retry_after_s is not None:
            return min(max(retry_after_s, 0.0), self.cap_s)
        # 2**64 would overflow the float long before the cap stops mattering.
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(max(attempt, 1), 60))
        return self.random.uniform(min(self.base_s, ceiling), ceiling)

    def delays_s(self) -> Iterator[float]:
        """Yield the waits of an endless series of attempts, for reconnect loops."""
        attempt = 0
        while True:
            attempt += 1
            yield self.delay_s(attempt)
