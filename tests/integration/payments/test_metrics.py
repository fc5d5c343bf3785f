"""The seed's metrics under the seed's names, and alerts that only name metrics that exist."""

import re
from datetime import timedelta

import asyncpg
from tests.support.payments import SqlPayments
from tests.support.rails import opened
from tests.support.sources import ROOT

from penstock.kernel.metrics import METRICS, Metrics, read_stats

NAMES = {
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


def test_every_metric_of_the_seed_is_there_by_its_name() -> None:
    assert {metric.name for metric in METRICS} >= NAMES


def test_alerts_name_metrics_that_exist() -> None:
    text = (ROOT / "docs" / "reference" / "alerts" / "payments.rules.yml").read_text("utf-8")
    named = set(re.findall(r"(\w+)\{queue=\"payments\"", text))
    assert len(named) == 5
    assert named <= {metric.name for metric in METRICS}


async def test_attempts_are_counted_by_their_states(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    sql = SqlPayments(conn)
    await sql.make_clock_shiftable()
    async with opened(database_url) as shop:
        metrics = Metrics(read_stats(shop.ps.lending.database), stats_cache_s=0)
        shop.ps.subscribe(metrics.subscriber)
        shop.use()
        shop.simulator.script = ["", "refused", "busy"]
        for name in ("a", "b", "c"):
            await shop.enqueue(name)
        await shop.work()
        await shop.enqueue("d")
        assert [f.participant for f in await sql.claim() if f.participant == "d"] == ["d"]
        await sql.advance(timedelta(minutes=5))
        assert 'stuck_dispatching_count{queue="payments"}' in (await metrics.render()).decode()
        await shop.run_job("payments_reap")
        text = (await metrics.render()).decode()
    for state, count in (("DISPATCHING", 3), ("DISPATCHED", 1), ("FAILED", 1), ("RETRYABLE", 1)):
        assert f'attempts_total{{queue="payments",state="{state}"}} {count}.0' in text
    assert re.search(r'attempts_total\{queue="payments",state="ZOMBIE_REQUEUE"\} [12]\.0', text)
    assert re.search(r'reaper_requeues_total\{queue="payments"\} [12]\.0', text)
    assert 'dispatch_latency_ms_count{queue="payments"} 3.0' in text
    assert 'dlq_depth{queue="payments"} 1.0' in text
    assert 'claim_batches_total{queue="payments"} 1.0' in text
