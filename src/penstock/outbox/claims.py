"""What one worker asks for on behalf of destinations, told by its pump and read by its queue."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

# No topic can hold this, because Postgres stores none: so no handler's lane is called the same.
_MARK = "\0"


def lane_of(destination: str) -> str:
    """The lane in which deliveries to a destination wait."""
    return _MARK + destination


def destination_of(lane: str) -> str | None:
    """The destination whose lane it is; None for the lane of a handler."""
    return lane[1:] if lane.startswith(_MARK) else None


@dataclass(slots=True)
class Claims:
    """How much room each destination has here, and what is known of their breakers.

    Those `watched` want to hear of successes too, those `probing` wait for the answer to the one
    delivery they let through; what was claimed before one was found `open` is not sent any more.

    `handlers` is the room of the widest lane that is a handler's; None until the pump has told.
    `limit` is how many items may be claimed in all; None where there is no end.
    """

    room: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None
    handlers: int | None = None
    watched: set[str] = field(default_factory=set)
    probing: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)

    def offer(self, room: Mapping[str, int], limit: int | None) -> None:
        """Take over what the pump says of its lanes."""
        found: dict[str, int] = {}
        widest = 0
        for lane, free in room.items():
            name = destination_of(lane)
            if name is None:
                widest = max(widest, free)
            elif free:
                found[name] = free
        self.handlers = widest
        self.room, self.limit = found, limit

    def wanted(self, taken: int) -> Mapping[str, int]:
        """What to ask for where handlers were just given so many of what may be claimed in all."""
        return self.room if self.limit is None else shares(self.room, self.limit - taken)


def shares(room: Mapping[str, int], limit: int) -> dict[str, int]:
    """Room cut down so that all together take no more than the limit; whose turn it is, is luck."""
    found: dict[str, int] = {}
    for name in random.sample(list(room), len(room)):
        share = min(room[name], limit - sum(found.values()), max(1, limit // len(room)))
        if share > 0:
            found[name] = share
    return found
