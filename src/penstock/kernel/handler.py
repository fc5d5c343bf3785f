"""What the pump calls: something that takes claimed items and answers for each of them."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.kernel.queue import Item
from penstock.kernel.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Committed:
    """The handler's own transaction has finished the item already; nothing is left to write."""


@dataclass(frozen=True, slots=True)
class Check:
    """The handler says it finished the item on the user's connection; the queue checks that."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease was lost and no effect of this attempt remains: there is nothing to write."""


@dataclass(frozen=True, slots=True)
class Back:
    """The handler has not begun: the item goes back as it was, and the attempt does not count."""


COMMITTED = Committed()
CHECK = Check()
LOST = Lost()
BACK = Back()

Answer: TypeAlias = Verdict | Committed | Check | Lost | Back


class Handler(Protocol):
    """Takes up to `size` items of one topic at a time, in up to `concurrency` calls at once.

    `handle` answers for each item in order and does not raise for what its items do: an exception
    of the user's code is a Retry. What it does raise is a fault of ours or of the database.
    Cancellation means shutdown; items of a cancelled call are released without counting.
    """

    size: int
    concurrency: int
    timeout_s: float
    max_attempts: int

    async def handle(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Run the effect for each item and say what came of it."""
        ...


TURNS = 64  # calls without giving way to anything else

# The items begun, the answers to all of them but maybe the last, and what that one waits for.
Dash: TypeAlias = tuple[list[Item], list[Answer], Awaitable[Sequence[Answer]] | None]


class Quick(ABC):
    """A handler whose calls may be made one after the other without giving way in between."""

    @abstractmethod
    def dash(self, waiting: deque[Item]) -> Dash:
        """Take items, one per call, until one has to wait, none is left, or it is others' turn.

        Takes one at least, if there is any.
        """


class Roster(Protocol):
    """Who handles what, where that changes while a pump runs."""

    async def look(self, *, patient: bool, idle: bool = False) -> Mapping[str, Handler] | None:
        """The handlers by lane as they should be now; None while the last answer still holds.

        Called before every claim, so it must be quick and must not raise for what it meets. Only
        where the pump ends when there is nothing to do, it may wait for handlers to get ready.
        `idle` is said while there is nothing to do: what has to be looked up soon may be now.
        """
        ...

    def offer(self, room: Mapping[str, int], limit: int | None) -> None:
        """How many items each lane can take, and (None: no end) all together; before a claim."""
        ...

    async def close(self) -> None:
        """The pump has ended: let go of whatever the handlers used."""
        ...
