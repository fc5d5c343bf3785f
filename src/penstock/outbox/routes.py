"""Routes: which handler an event goes to, and under which name the database knows it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.kernel.errors import BadHandler
from penstock.kernel.handlers import Registration

PYTHON = "python"
ROUTING_S = 1.0
IDLE_ROUTING_S = 0.8  # while there is nothing to do: so that an event seldom waits for a look
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")


@dataclass(frozen=True, slots=True)
class Route:
    """A handler as a route. `lane` names it in the pump: the topic where it is the only handler."""

    name: str
    topic: str
    destination: str
    lane: str


@dataclass(slots=True)
class Routing:
    """What one worker claims, kept up to date by looking at the routes once a second."""

    routes: Sequence[Route]
    topics: list[str]
    lanes: dict[str, str]
    to_expand: bool = False
    looked_at: float = 0.0

    @classmethod
    def of(cls, routes: Sequence[Route]) -> "Routing":
        """A routing that claims nothing directly until it has looked."""
        lanes = {route.name: route.lane for route in routes}
        lanes |= {route.topic: route.topic for route in routes if route.lane == route.topic}
        return cls(routes, [], lanes)

    def learn(self, plain: set[str], *, to_expand: bool) -> None:
        """Take over what the database says: topics that one route alone takes need no expansion."""
        direct = [route for route in self.routes if route.name in plain]
        self.lanes |= {route.topic: route.lane for route in direct}
        self.topics = sorted({r.name for r in self.routes} | {r.topic for r in direct})
        self.to_expand = to_expand

    def named(self, lanes: Iterable[str]) -> list[str]:
        """The topics, as the database stores them, that lead to these lanes."""
        full = set(lanes)
        return [topic for topic, lane in self.lanes.items() if lane in full]


def routes_of(registrations: Sequence[Registration]) -> dict[Route, Registration]:
    """Each handler with its route: by its name where it has one, or is not the only one."""
    found: dict[Route, Registration] = {}
    ordered = sorted(registrations, key=lambda registration: registration.topic)
    for topic, group in groupby(ordered, key=lambda registration: registration.topic):
        handlers = list(group)
        for handler in handlers:
            name = handler.name or ("" if len(handlers) == 1 else name_of(handler))
            destination = f"{PYTHON}:{name}" if name else PYTHON
            route = f"{destination}/{topic}"
            found[Route(route, topic, destination, route if name else topic)] = handler
    return found


def name_of(registration: Registration) -> str:
    """The name that was given, or the function's own without where it stands."""
    return registration.name or registration.plan.name.rpartition(".")[2]


def check_names(registrations: Sequence[Registration], new: Registration) -> None:
    """Two handlers of one topic need different names, because the name is what remembers them."""
    name = name_of(new)
    if not NAME.fullmatch(name):
        raise BadHandler(
            f"{name!r} cannot name a handler",
            happened="the name is part of a route: 1 to 80 letters, digits, dots, dashes, lines.",
            todo="give it a name: on(name=...).",
        )
    for other in registrations:
        if other.topic == new.topic and name_of(other) == name:
            raise BadHandler(
                f"topic {new.topic} has a handler {name} already",
                happened="handlers of one topic are told apart by their names.",
                todo="give one of them another name: on(name=...).",
            )
