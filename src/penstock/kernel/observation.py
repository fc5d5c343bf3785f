"""What an observation is and how it reaches those who listen; the catalogue is `events.py`."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

_log = logging.getLogger("penstock.events")

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Observation:
    """Base of all observations; `name` is the constant log message and the metric's stem."""

    name: ClassVar[str] = "observation"
    level: ClassVar[Level] = "info"


Subscriber = Callable[[Observation], None]


class Events:
    """Hands each observation to every subscriber."""

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()

    @property
    def active(self) -> bool:
        """Whether anybody listens; lets a hot path skip building observations."""
        return bool(self._subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; it must be quick and must not raise."""
        self._subscribers = (*self._subscribers, subscriber)

    def emit(self, observation: Observation) -> None:
        """Tell every subscriber. A failing one is logged and skipped: watching is not working."""
        for subscriber in self._subscribers:
            try:
                subscriber(observation)
            except Exception:
                _log.exception("observer_failed", extra={"observation": observation.name})
