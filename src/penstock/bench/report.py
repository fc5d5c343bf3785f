"""The one shape of every benchmark's answer: machine, figures, goals."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from penstock.kernel.queue import Connection

SETTINGS = ("server_version", "synchronous_commit", "fsync", "shared_buffers", "wal_level")


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that must reach a bound."""

    name: str
    value: float
    goal: float
    met: bool


@dataclass(slots=True)
class BenchReport:
    """What `penstock bench NAME --json` prints."""

    machine: Mapping[str, str]
    figures: dict[str, float] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, reason: str) -> None:
        """Say why a figure is missing."""
        self.notes[name] = reason

    def figure(self, name: str, value: float) -> float:
        """Keep a figure, rounded to what is meaningful."""
        self.figures[name] = float(f"{value:.4g}")
        return value

    def goal(self, name: str, value: float, *, bound: Literal[">=", "<="], goal: float) -> None:
        """Judge a figure against its bound."""
        met = value >= goal if bound == ">=" else value <= goal
        self.goals.append(Goal(f"{name} {bound} {goal:g}", float(f"{value:.4g}"), goal, met))

    @property
    def met(self) -> bool:
        """Whether every goal is met."""
        return all(goal.met for goal in self.goals)

    def as_json(self) -> dict[str, object]:
        """The object to print."""
        return {
            "machine": dict(self.machine),
            "figures": self.figures,
            "goals": [asdict(goal) for goal in self.goals],
            "notes": self.notes,
        }


async def describe_machine(conn: Connection) -> dict[str, str]:
    """Cores, processor, memory, Python, and the server's version and settings."""
    machine = {
        "cores": str(os.cpu_count()),
        "cpu": _cpu_model(),
        "memory_gib": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f}",
        "python": platform.python_version(),
        "load_before": f"{os.getloadavg()[0]:.1f}",
    }
    rows = await conn.fetch(
        "select name, current_setting(name) as value from unnest($1::text[]) as name", SETTINGS
    )
    return machine | {row["name"]: row["value"] for row in rows}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
