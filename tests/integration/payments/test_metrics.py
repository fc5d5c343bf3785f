"""The seed's metrics under the seed's names, and alerts that only name metrics that exist."""

import re
import shutil
import subprocess
from datetime import timedelta

import asyncpg
import pytest
from tests.support.payments import SqlPayments
from tests.support.rails import opened
from tests.support.sources import ROOT

from penstock.cli.commands import COMMANDS
from penstock.kernel.metrics import METRICS, Metrics, read_stats

ALERTS = ROOT / "docs" / "reference" / "alerts"
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
    text = (ALERTS / "payments.rules.yml").read_text("utf-8")
    named = set(re.findall(r"(\w+)\{queue=\"payments\"", text))
    assert len(named) == 5
    assert named <= {metric.name for metric in METRICS}


def _rules() -> list[dict[str, str]]:
    """The rules, one mapping of all their keys each; the file has no other structure."""
    rules: list[dict[str, str]] = []
    for line in (ALERTS / "payments.rules.yml").read_text("utf-8").splitlines():
        found = re.fullmatch(r"( +)(?:- )?(\w+):(?: (.*))?", line)
        if found is None:
            continue
        if found[2] == "alert":
            rules.append({})
        if rules:
            rules[-1][found[2]] = (found[3] or "").strip('"')
    return rules


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    rules = _rules()
    assert {rule["alert"] for rule in rules} == {
        "PaymentsOldestPendingTooOld",
        "PaymentsDeadLettersGrow",
        "PaymentsStuckDispatching",
        "PaymentsRetryableRateHigh",
        "PaymentsHeld",
    }
    for rule in rules:
        assert rule["severity"] in {"page", "ticket"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert "{{ $value" in rule["summary"]
        assert rule["expr"]
        commands = re.findall(r"penstock (\w+)", rule["action"])
        assert commands, "an alert at 3 a.m. names a command"
        assert set(commands) <= COMMANDS.keys()


def test_the_tests_of_the_alerts_expect_what_the_rules_say() -> None:
    """Words are written twice; promtool compares them, where it is there."""
    tests = (ALERTS / "payments.test.yml").read_text("utf-8")
    for rule in _rules():
        assert tests.count(f"alertname: {rule['alert']}") == 2, "once silent, once firing"
        assert f'action: "{rule["action"]}"' in tests
        before, after = re.split(r"\{\{.*?\}\}", rule["summary"])
        assert re.search(f"{re.escape(before)}[0-9ms% ]+?{re.escape(after)}", tests)


def test_prometheus_itself_takes_the_alerts_and_fires_them() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: the alerts were checked by our own reading only")
    for arguments in (
        ("check", "rules", "payments.rules.yml"),
        ("test", "rules", "payments.test.yml"),
    ):
        ran = subprocess.run(
            [promtool, *arguments], cwd=ALERTS, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


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
        await shop.enqueue("e")
        await sql.advance(timedelta(minutes=5))
        text = (await metrics.render()).decode()
        assert re.search(r'stuck_dispatching_count\{queue="payments"\} [12]\.0', text)
        assert re.search(r'outbox_pending_depth\{queue="payments"\} [12]\.0', text)
        assert re.search(r'oldest_pending_age_seconds\{queue="payments"\} [36]\d\d\.', text)
        await shop.run_job("payments_reap")
        text = (await metrics.render()).decode()
    for state, count in (("DISPATCHING", 3), ("DISPATCHED", 1), ("FAILED", 1), ("RETRYABLE", 1)):
        assert f'attempts_total{{queue="payments",state="{state}"}} {count}.0' in text
    assert re.search(r'attempts_total\{queue="payments",state="ZOMBIE_REQUEUE"\} [12]\.0', text)
    assert re.search(r'reaper_requeues_total\{queue="payments"\} [12]\.0', text)
    assert 'dispatch_latency_ms_count{queue="payments"} 3.0' in text
    assert 'dlq_depth{queue="payments"} 1.0' in text
    assert 'claim_batches_total{queue="payments"} 1.0' in text
