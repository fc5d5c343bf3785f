"""What one run of the demo is to do. The same seed makes the same crowd in the same order."""

import hashlib
from dataclasses import dataclass

POOL = "demo_concert_2026"
DROPS = 5
# Short, so that what a dead worker held comes back while one watches.
LEASE_S = 2
WORKERS = 3
CONNECTIONS = 256


@dataclass(frozen=True, slots=True)
class Drop:
    """Some seats put on sale at once, and the buyers who come for them."""

    number: int
    seats: int
    first_buyer: int
    buyers: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Seats, buyers and seed; the seats come in drops, each met by its share of the crowd."""

    slots: int = 1000
    buyers: int = 50_000
    seed: int = 7

    def drops(self) -> list[Drop]:
        """The seats in equal shares; the first ones take what is left over."""
        seats = _shares(self.slots)
        buyers = _shares(self.buyers)
        return [
            Drop(number + 1, seats[number], sum(buyers[:number]), buyers[number])
            for number in range(DROPS)
        ]

    @property
    def forged(self) -> int:
        """How many come with a token that somebody else has signed."""
        return max(5, self.buyers // 1000)


def _shares(total: int) -> list[int]:
    return [total // DROPS + (1 if number < total % DROPS else 0) for number in range(DROPS)]


def shuffled(first: int, count: int, seed: int) -> list[int]:
    """The numbers of a range in an order that only the seed decides."""

    def key(number: int) -> bytes:
        return hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()

    return sorted(range(first, first + count), key=key)
