"""Gauges of destinations for Prometheus, read from the database at a scrape.

Names of destinations come from people who may configure them, so their number is theirs to bound.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import asyncpg

from penstock.kernel.database import Database
from penstock.kernel.errors import PenstockError
from penstock.outbox import destinations
from penstock.outbox.destinations import DestinationStats

BREAKER = {"closed": 0, "half_open": 1, "open": 2}
DESTINATIONS_MAX = 200


@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge: its name, what it tells, and how it is read."""

    name: str
    doc: str
    of: Callable[[DestinationStats], int]


GAUGES = (
    Gauge(
        "penstock_destination_breaker",
        "0 closed, 1 half open, 2 open.",
        lambda one: BREAKER[one.breaker],
    ),
    Gauge(
        "penstock_destination_enabled",
        "1 if events are delivered to it at all.",
        lambda one: int(one.enabled and not one.paused),
    ),
    Gauge(
        "penstock_destination_unusable",
        "1 if a worker cannot use it as configured.",
        lambda one: int(one.fault is not None),
    ),
    Gauge(
        "penstock_destination_waiting",
        "Deliveries that are ready or wait.",
        lambda one: one.ready + one.waiting,
    ),
    Gauge(
        "penstock_destination_dead",
        "Dead or held deliveries, which need a person.",
        lambda one: one.dead,
    ),
)


def exposition(found: Iterable[DestinationStats]) -> str:
    """The gauges in the text form that Prometheus reads."""
    shown = list(found)[:DESTINATIONS_MAX]
    lines: list[str] = []
    for gauge in GAUGES if shown else ():
        lines.append(f"# HELP {gauge.name} {gauge.doc}")
        lines.append(f"# TYPE {gauge.name} gauge")
        lines += [f'{gauge.name}{{destination="{one.name}"}} {gauge.of(one)}' for one in shown]
    return "\n".join(lines) + "\n" if lines else ""


def reader(database: Database) -> Callable[[], Awaitable[str]]:
    """What reads the gauges at a scrape; a database that is away must not break the scrape."""

    async def read() -> str:
        try:
            async with database.connection(timeout_s=2) as conn:
                return exposition(await destinations.stats(conn))
        except (PenstockError, asyncpg.PostgresError):
            return ""  # not reachable, not installed, or not ours to read

    return read
