"""The inbox's counters for Prometheus, read from the database.

They are added up in the transactions that they count, so no worker that dies takes a count with it.
Labels come from closed sets: codes, never messages; the role that replayed, never a person.
"""

import re
from collections import Counter as Sums
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import asyncpg

from penstock.inbox import store
from penstock.inbox.model import Counter
from penstock.kernel.database import Database
from penstock.kernel.errors import PenstockError

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
_OTHER = "other"
REASONS_MAX = 64


@dataclass(frozen=True, slots=True)
class Definition:
    """One counter: its name for Prometheus, what its third label is called, what it tells."""

    name: str
    label: str
    doc: str


DEFINITIONS = {
    "processing": Definition(
        "webhook_processing_total", "result", "Attempts of webhook events by result."
    ),
    "dead_letter": Definition(
        "webhook_dead_letter_total", "reason", "Webhook events that became dead letters, by code."
    ),
    "replay": Definition(
        "webhook_replay_total", "operator", "Webhook events replayed, by the role that did it."
    ),
    "conflict": Definition(
        "webhook_conflicting_duplicate_total",
        "kind",
        "Known events that came with another body.",
    ),
}


def exposition(counters: Iterable[Counter]) -> str:
    """The counters in the text form that Prometheus reads."""
    by_metric: dict[str, Sums[tuple[str, str, str]]] = {name: Sums() for name in DEFINITIONS}
    reasons: set[str] = set()
    for counter in counters:
        series = by_metric.get(counter.metric)
        if series is not None:
            key = (str(counter.webhook_id), counter.provider, _closed(counter.label, reasons))
            series[key] += counter.total
    lines: list[str] = []
    for metric, definition in DEFINITIONS.items():
        lines.append(f"# HELP {definition.name} {definition.doc}")
        lines.append(f"# TYPE {definition.name} counter")
        for (webhook_id, provider, label), total in sorted(by_metric[metric].items()):
            labels = f'webhook_id="{webhook_id}",provider="{provider}",{definition.label}="{label}"'
            lines.append(f"{definition.name}{{{labels}}} {total}")
    return "\n".join(lines) + "\n"


def _closed(label: str, seen: set[str]) -> str:
    """A handler may give codes of its own: their form and their number are bounded."""
    if label in seen:
        return label
    if len(seen) >= REASONS_MAX or not _CODE.fullmatch(label):
        return _OTHER
    seen.add(label)
    return label


def reader(database: Database) -> Callable[[], Awaitable[str]]:
    """What reads the counters at a scrape; a database that is away must not break the scrape."""

    async def read() -> str:
        try:
            async with database.connection(timeout_s=2) as conn:
                return exposition(await store.counters(conn))
        except (PenstockError, asyncpg.PostgresError):
            return ""  # not reachable, not installed, or not ours to read

    return read
