"""What is known of a run while it runs: written by those who act, read by the screen."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal

from penstock.demo.plan import Plan

HISTORY = 40


@dataclass(slots=True)
class Fault:
    """Something done to the system on purpose: named before it happens, then with its outcome."""

    name: str
    at_s: float
    state: Literal["next", "now", "done", "failed"] = "next"
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The pool and its queue at one moment."""

    stocked: int = 0
    free: int = 0
    reserved: int = 0
    sold: int = 0
    queue: int = 0


@dataclass(slots=True)
class Show:
    """One run: the plan, the clock, and what was seen so far."""

    plan: Plan
    started: float = field(default_factory=monotonic)
    phase: str = "setting up"
    sample: Sample = field(default_factory=Sample)
    crowd: dict[str, Any] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    queue_history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    rate_history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    answers: int = 0
    seconds: float = 0.0
    proof: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Since the beginning."""
        return monotonic() - self.started

    @property
    def claims_per_s(self) -> float:
        """Answered claims per second of the bursts that are over."""
        return self.answers / self.seconds if self.seconds else 0.0

    def count(self, name: str) -> int:
        """A figure of the crowd."""
        return int(self.crowd.get(name, 0))

    def announce(self, name: str) -> Fault:
        """Name a fault before it happens."""
        fault = Fault(name, self.elapsed_s)
        self.faults.append(fault)
        return fault

    def refused(self) -> Mapping[str, int]:
        """What was attempted and had no second effect."""
        return {
            "double_clicks": self.count("same"),
            "stale_finishes": self.workers.get("stale", 0),
            "forged_tokens": self.count("forged"),
            "redelivered": self.workers.get("redelivered", 0),
        }
