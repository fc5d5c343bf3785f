"""The benchmark runs and reports every figure."""

import pytest
from tests.support.cli import Cli

pytestmark = pytest.mark.slow


def test_a_quick_bench_reports_rates_costs_and_goals(cli: Cli) -> None:
    ran = cli("--json", "bench", "payments", "--quick")
    assert ran.code == 0, ran.err
    figures = ran.document["figures"]
    for participants in (1, 10, 1000):
        for kind in ("enqueues_per_s", "bare_per_s", "dispatches_per_s", "wal_bytes_per_payment"):
            assert figures[f"{kind}_at_{participants}_participants"] > 0
    assert figures["claim_ms_with_backlog"] > 0
    assert figures["enqueue_to_rail_ms_p95"] >= figures["enqueue_to_rail_ms_p50"]
    for rows in (1000, 4000):
        for kind in ("claim", "reap", "depth"):
            assert figures[f"{kind}_ms_at_{rows}_attempts"] > 0
    assert len(ran.document["goals"]) == 4
