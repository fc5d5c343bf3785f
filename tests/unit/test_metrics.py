from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from penstock.kernel import events
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.metrics import METRICS, Metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    found: float | None = metrics.registry.get_sample_value(name, labels)
    return found


def handled(queue: str, verdict: str) -> events.Handled:
    return events.Handled(
        queue=queue,
        topic="t",
        item_id=uuid4(),
        attempt=1,
        verdict=verdict,
        code="",
        latency_ms=1.5,
    )


def test_observations_become_counts() -> None:
    metrics = Metrics()
    seen: list[events.Observation] = [
        events.Claimed(queue="outbox", count=7, latency_ms=3.0),
        handled("outbox", "done"),
        handled("outbox", "retry"),
        events.Finished(queue="outbox", count=5, stale=2, latency_ms=1.0),
        events.FinishFailed(queue="outbox", item_id=uuid4(), error_type="OSError"),
        events.Tended(queue="outbox", reaped=3, due=0, swept=1),
        events.WokeUp(queue="outbox", by="notify"),
        events.JobRan(job="purge", latency_ms=1.0, error_type="OSError"),
        events.ListenUnavailable(reason="pooler"),
    ]
    for observation in seen:
        metrics.subscriber(observation)
    assert value(metrics, "claim_batches_total", queue="outbox") == 1
    assert value(metrics, "penstock_claimed_total", queue="outbox") == 7
    assert value(metrics, "attempts_total", queue="outbox", state="done") == 1
    assert value(metrics, "attempts_total", queue="outbox", state="retry") == 1
    assert value(metrics, "penstock_claim_latency_ms_sum", queue="outbox") == 3
    assert value(metrics, "penstock_finish_failed_total", queue="outbox") == 1
    assert value(metrics, "penstock_finished_total", queue="outbox") == 3
    assert value(metrics, "penstock_stale_finishes_total", queue="outbox") == 2
    assert value(metrics, "reaper_requeues_total", queue="outbox") == 3
    assert value(metrics, "notify_wakeups_total", queue="outbox") == 1
    assert value(metrics, "penstock_jobs_total", outcome="error") == 1


def test_names_are_the_seeds_or_our_own() -> None:
    seeds = {
        "outbox_pending_depth",
        "oldest_pending_age_seconds",
        "notify_wakeups_total",
        "claim_batches_total",
        "dispatch_latency_ms",
        "attempts_total",
        "dlq_depth",
        "reaper_requeues_total",
        "stuck_dispatching_count",
    }
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert seeds <= set(names)
    assert all(name.startswith("penstock_") for name in set(names) - seeds)


def test_labels_stay_within_closed_sets() -> None:
    metrics = Metrics()
    metrics.subscriber(handled("outbox", 'done"} 1\nforged 1'))
    assert value(metrics, "attempts_total", queue="outbox", state="other") == 1
    for number in range(200):
        metrics.subscriber(events.WokeUp(queue=f"queue_{number}", by="poll"))
    metrics.subscriber(events.WokeUp(queue="Not A Queue", by="poll"))
    series = {
        sample.labels["queue"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "penstock_wakeups_total"
    }
    assert len(series) <= 65
    assert "Not A Queue" not in series


def test_two_processes_in_one_do_not_share_counts() -> None:
    one, other = Metrics(), Metrics()
    one.subscriber(events.Released(queue="outbox", count=2))
    assert value(other, "penstock_released_total", queue="outbox") is None


class Stats:
    """Stands in for the view, and counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.fails = False

    async def __call__(self) -> Sequence[Mapping[str, Any]]:
        self.reads += 1
        if self.fails:
            raise DatabaseUnreachable("gone")
        row = dict.fromkeys(("ready", "scheduled", "leased", "expired", "dead", "held"), 4)
        return [{"queue": "outbox", "oldest_age_s": None, **row}]


async def test_depths_are_read_at_the_scrape_and_cached() -> None:
    stats = Stats()
    metrics = Metrics(stats)
    first = (await metrics.render()).decode()
    assert 'dlq_depth{queue="outbox"} 4.0' in first
    assert 'oldest_pending_age_seconds{queue="outbox"} 0.0' in first
    await metrics.render()
    assert stats.reads == 1


async def test_a_scrape_without_database_gives_counters_and_no_stale_depths() -> None:
    stats = Stats()
    metrics = Metrics(stats, stats_cache_s=0)
    metrics.subscriber(events.Released(queue="outbox", count=2))
    await metrics.render()
    stats.fails = True
    text = (await metrics.render()).decode()
    assert "penstock_stats_up 0.0" in text
    assert 'penstock_released_total{queue="outbox"} 2.0' in text
    assert "dlq_depth{" not in text
