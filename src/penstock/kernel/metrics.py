"""Subscriber that counts observations for Prometheus. Needs the extra `server`.

Names that a seed gives are used as they are; all others begin with `penstock_`. Labels come from
closed sets, so that no caller can grow the number of series.
"""

import importlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.kernel import events
from penstock.kernel.database import Database, call
from penstock.kernel.errors import MissingExtra, PenstockError

Kind = Literal["counter", "gauge", "histogram"]

_LATENCY_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
_QUEUES_MAX = 64
_QUEUE_NAME = re.compile(r"[a-z][a-z0-9_./]{0,62}")
_OTHER = "other"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, what it is, its labels and what it tells."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str


METRICS = (
    Metric("outbox_pending_depth", "gauge", ("queue",), "Items that are ready to be claimed."),
    Metric("oldest_pending_age_seconds", "gauge", ("queue",), "Age of the oldest ready item."),
    Metric("dlq_depth", "gauge", ("queue",), "Dead items, which need a person."),
    Metric("stuck_dispatching_count", "gauge", ("queue",), "Leases that expired unreaped."),
    Metric("penstock_held_count", "gauge", ("queue",), "Items whose outcome is unknown."),
    Metric("penstock_leased_count", "gauge", ("queue",), "Items some worker owns now."),
    Metric("penstock_scheduled_count", "gauge", ("queue",), "Items that wait for their time."),
    Metric("penstock_stats_up", "gauge", (), "1 if the depths could be read at this scrape."),
    Metric("claim_batches_total", "counter", ("queue",), "Claims that came back with items."),
    Metric("penstock_claimed_total", "counter", ("queue",), "Items claimed."),
    Metric("penstock_claim_latency_ms", "histogram", ("queue",), "Duration of a claim."),
    Metric(
        "attempts_total", "counter", ("queue", "state"), "Attempts by verdict; payments by state."
    ),
    Metric("dispatch_latency_ms", "histogram", ("queue",), "Duration of a handler's call."),
    Metric("penstock_handler_raised_total", "counter", ("queue",), "Handlers that raised."),
    Metric("penstock_finished_total", "counter", ("queue",), "Outcomes written."),
    Metric("penstock_stale_finishes_total", "counter", ("queue",), "Outcomes refused as stale."),
    Metric("penstock_finish_failed_total", "counter", ("queue",), "Outcomes not taken."),
    Metric("penstock_finish_latency_ms", "histogram", ("queue",), "Duration of a finish."),
    Metric("penstock_leases_lost_total", "counter", ("queue",), "Extensions that were refused."),
    Metric("penstock_deaths_total", "counter", ("queue",), "Items that became dead letters."),
    Metric("penstock_released_total", "counter", ("queue",), "Items given back unstarted."),
    Metric("reaper_requeues_total", "counter", ("queue",), "Expired leases returned to ready."),
    Metric("penstock_due_total", "counter", ("queue",), "Waiting items whose time had come."),
    Metric("penstock_swept_total", "counter", ("queue",), "Late commits that a sweep found."),
    Metric("notify_wakeups_total", "counter", ("queue",), "Pumps woken by a notification."),
    Metric("penstock_wakeups_total", "counter", ("queue", "by"), "Pumps that stopped waiting."),
    Metric("penstock_disconnects_total", "counter", ("queue",), "Times the database went away."),
    Metric("penstock_webhooks_total", "counter", ("result",), "Verified events by how taken."),
    Metric("penstock_webhooks_refused_total", "counter", ("reason",), "Requests not believed."),
    Metric("penstock_jobs_total", "counter", ("outcome",), "Runs of scheduled jobs."),
)
CLOSED_LABELS = {
    "state": frozenset(
        {
            *("done", "retry", "reject", "unknown"),
            *("DISPATCHING", "DISPATCHED", "RETRYABLE", "FAILED", "ZOMBIE_REQUEUE", "HELD"),
        }
    ),
    "by": frozenset({"notify", "poll", "doorbell", "busy"}),
    "outcome": frozenset({"ok", "error"}),
    "result": frozenset({"stored", "duplicate", "conflicting_duplicate", "over_quota"}),
    "reason": frozenset(
        {
            "source_unknown",
            "signature_missing",
            "signature_invalid",
            "header_malformed",
            "timestamp_malformed",
            "timestamp_outside_tolerance",
        }
    ),
}
# Their attempts are rows with states of their own, counted when they are written.
OWN_ATTEMPTS = frozenset({"payments"})
_GAUGES = {
    "ready": "outbox_pending_depth",
    "oldest_age_s": "oldest_pending_age_seconds",
    "dead": "dlq_depth",
    "expired": "stuck_dispatching_count",
    "held": "penstock_held_count",
    "leased": "penstock_leased_count",
    "scheduled": "penstock_scheduled_count",
}
_GAUGE_NAMES = frozenset(_GAUGES.values())
_STATS = """
select queue, ready, scheduled, leased, expired, dead, held, oldest_age_s from penstock.queue_stats
"""

StatsReader = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


def read_stats(database: Database) -> StatsReader:
    """A reader of `penstock.queue_stats` over an opened database."""

    async def read() -> Sequence[Mapping[str, Any]]:
        async with database.connection(timeout_s=2) as conn:
            return await call(conn, _STATS)

    return read


class Metrics:
    """Counters of one process, and the depths of the queues as read at the last scrape.

    `more` holds readers of what products count by themselves, as text for Prometheus.
    """

    def __init__(self, stats: StatsReader | None = None, *, stats_cache_s: float = 2.0) -> None:
        self._client = _prometheus()
        self._stats = stats
        self._stats_cache_s = stats_cache_s
        self._stats_read_at = float("-inf")
        self._queues: set[str] = set()
        self._children: dict[tuple[str, ...], Any] = {}
        self.more: list[Callable[[], Awaitable[str]]] = []
        self.registry = self._client.CollectorRegistry()
        self._metrics = {metric.name: self._make(metric) for metric in METRICS}

    def _make(self, metric: Metric) -> Any:
        options: dict[str, Any] = {"labelnames": metric.labels, "registry": self.registry}
        if metric.kind == "histogram":
            options["buckets"] = _LATENCY_BUCKETS_MS
        maker = getattr(self._client, metric.kind.title())
        return maker(metric.name, metric.doc, **options)

    def subscriber(self, observation: events.Observation) -> None:
        """Count one observation; kinds that tell no number are passed over."""
        count = _COUNTERS.get(type(observation))
        if count is not None:
            count(self, observation)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Raise a counter."""
        if amount:
            self._labelled(name, labels).inc(amount)

    def time(self, name: str, milliseconds: float, **labels: str) -> None:
        """Record a duration."""
        self._labelled(name, labels).observe(milliseconds)

    def _labelled(self, name: str, labels: Mapping[str, str]) -> Any:
        """The series of one set of labels; kept, because finding it costs more than counting."""
        child = self._children.get((name, *labels.values()))
        if child is not None:
            return child
        closed = {label: self._closed(label, value) for label, value in labels.items()}
        child = self._metrics[name].labels(**closed)
        if closed == labels and name not in _GAUGE_NAMES:
            # Only values of the closed sets are kept, and no gauge: those are cleared.
            self._children[name, *labels.values()] = child
        return child

    def _closed(self, label: str, value: str) -> str:
        if label in CLOSED_LABELS:
            return value if value in CLOSED_LABELS[label] else _OTHER
        if value in self._queues:
            return value
        if len(self._queues) >= _QUEUES_MAX or not _QUEUE_NAME.fullmatch(value):
            return _OTHER
        self._queues.add(value)
        return value

    async def render(self) -> bytes:
        """The text that Prometheus reads; depths are at most a few seconds old."""
        await self._refresh()
        text: bytes = self._client.generate_latest(self.registry)
        return text + "".join([await read() for read in self.more]).encode()

    async def _refresh(self) -> None:
        now = time.monotonic()
        if self._stats is None or now - self._stats_read_at < self._stats_cache_s:
            return
        self._stats_read_at = now
        try:
            rows = await self._stats()
        except PenstockError:
            # A scrape must still give the counters; the depths of before would be a lie.
            self._metrics["penstock_stats_up"].set(0)
            self._clear_gauges()
            return
        self._metrics["penstock_stats_up"].set(1)
        self._clear_gauges()
        for row in rows:
            for column, name in _GAUGES.items():
                self._labelled(name, {"queue": row["queue"]}).set(row[column] or 0)

    def _clear_gauges(self) -> None:
        for name in _GAUGES.values():
            self._metrics[name].clear()


def _claimed(metrics: Metrics, seen: events.Claimed) -> None:
    metrics.add("claim_batches_total", queue=seen.queue)
    metrics.add("penstock_claimed_total", seen.count, queue=seen.queue)
    metrics.time("penstock_claim_latency_ms", seen.latency_ms, queue=seen.queue)


def _handled(metrics: Metrics, seen: events.Handled) -> None:
    if seen.queue not in OWN_ATTEMPTS:
        metrics.add("attempts_total", queue=seen.queue, state=seen.verdict)
    metrics.time("dispatch_latency_ms", seen.latency_ms, queue=seen.queue)


def _handler_raised(metrics: Metrics, seen: events.HandlerRaised) -> None:
    metrics.add("penstock_handler_raised_total", queue=seen.queue)


def _finished(metrics: Metrics, seen: events.Finished) -> None:
    metrics.add("penstock_finished_total", seen.count - seen.stale, queue=seen.queue)
    metrics.add("penstock_stale_finishes_total", seen.stale, queue=seen.queue)
    metrics.time("penstock_finish_latency_ms", seen.latency_ms, queue=seen.queue)


def _finish_failed(metrics: Metrics, seen: events.FinishFailed) -> None:
    metrics.add("penstock_finish_failed_total", queue=seen.queue)


def _item_died(metrics: Metrics, seen: events.ItemDied) -> None:
    metrics.add("penstock_deaths_total", queue=seen.queue)


def _lease_lost(metrics: Metrics, seen: events.LeaseWasLost) -> None:
    metrics.add("penstock_leases_lost_total", queue=seen.queue)


def _released(metrics: Metrics, seen: events.Released) -> None:
    metrics.add("penstock_released_total", seen.count, queue=seen.queue)


def _tended(metrics: Metrics, seen: events.Tended) -> None:
    metrics.add("reaper_requeues_total", seen.reaped, queue=seen.queue)
    metrics.add("penstock_due_total", seen.due, queue=seen.queue)
    metrics.add("penstock_swept_total", seen.swept, queue=seen.queue)


def _woke_up(metrics: Metrics, seen: events.WokeUp) -> None:
    metrics.add("penstock_wakeups_total", queue=seen.queue, by=seen.by)
    if seen.by == "notify":
        metrics.add("notify_wakeups_total", queue=seen.queue)


def _disconnected(metrics: Metrics, seen: events.Disconnected) -> None:
    metrics.add("penstock_disconnects_total", queue=seen.queue)


def _job_ran(metrics: Metrics, seen: events.JobRan) -> None:
    metrics.add("penstock_jobs_total", outcome="error" if seen.error_type else "ok")


def _delivery_taken(metrics: Metrics, seen: events.DeliveryTaken) -> None:
    metrics.add("penstock_webhooks_total", seen.count, result=seen.result)


def _delivery_rejected(metrics: Metrics, seen: events.DeliveryRejected) -> None:
    metrics.add("penstock_webhooks_refused_total", reason=seen.reason)


def _attempts_recorded(metrics: Metrics, seen: events.AttemptsRecorded) -> None:
    metrics.add("attempts_total", seen.count, queue=seen.queue, state=seen.state)


_COUNTERS: dict[type[events.Observation], Callable[[Metrics, Any], None]] = {
    events.Claimed: _claimed,
    events.Handled: _handled,
    events.HandlerRaised: _handler_raised,
    events.Finished: _finished,
    events.FinishFailed: _finish_failed,
    events.ItemDied: _item_died,
    events.LeaseWasLost: _lease_lost,
    events.Released: _released,
    events.Tended: _tended,
    events.WokeUp: _woke_up,
    events.Disconnected: _disconnected,
    events.JobRan: _job_ran,
    events.DeliveryTaken: _delivery_taken,
    events.DeliveryRejected: _delivery_rejected,
    events.AttemptsRecorded: _attempts_recorded,
}


def _prometheus() -> Any:
    try:
        return importlib.import_module("prometheus_client")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "metrics need prometheus-client", todo="pip install 'penstock[server]'"
        ) from error
