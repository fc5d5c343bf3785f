"""Latencies in bins: cheap to add to, cheap to ask, exact to half a millisecond up to a minute."""

BIN_S = 0.0005
BINS = 120_000


class Latencies:
    """Counts per bin."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self._count = 0

    def add(self, seconds: float) -> None:
        """Count one."""
        place = min(int(seconds / BIN_S), BINS)
        self._bins[place] = self._bins.get(place, 0) + 1
        self._count += 1

    def at(self, share: float) -> float:
        """The latency in milliseconds that this share of all did not exceed."""
        left = share * self._count
        for place in sorted(self._bins):
            left -= self._bins[place]
            if left <= 0:
                return (place + 1) * BIN_S * 1000
        return 0.0
