"""`penstock bench outbox` measures every part, and names a peer that cannot be had."""

from pathlib import Path

import asyncpg
import pytest
from tests.support.cli import Cli

from penstock.bench import copying, keyed
from penstock.bench.outbox import Bench, Plan
from penstock.bench.peers import running
from penstock.bench.peers.running import NotReached, Peer
from penstock.bench.report import BenchReport
from penstock.postgres import throwaway_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RATES = (
    "drain_per_s",
    "publish_single_per_s",
    "publish_single_8_producers_per_s",
    "publish_many_per_s",
    "publish_batch_per_s",
    "publish_copy_per_s",
    "keyed_publish_per_s",
    "keyed_per_s",
    "keyed_late_events",
    *(
        f"{kind}_{part}"
        for kind in ("keyless", "keyed")
        for part in ("fed_per_s", "held_early_per_s", "held_late_per_s", "held_to_healthy")
    ),
)


def test_a_quick_bench_reports_rates_costs_and_goals(cli: Cli) -> None:
    ran = cli("--json", "bench", "outbox", "--quick")
    assert ran.code == 0, ran.err
    figures = ran.document["figures"]
    assert {name for name in RATES if not figures[name] > 0} == set()
    assert figures["pickup_listen_p95_ms"] >= figures["pickup_listen_p50_ms"]
    assert figures["disk_sync_p95_ms"] >= figures["disk_sync_p50_ms"] > 0
    assert figures["pickup_poll_p95_ms"] >= figures["pickup_poll_p50_ms"]
    assert figures["wal_bytes_per_event"] > 200
    assert figures["round_trips_for_100"] == 2
    assert figures["keyed_out_of_order"] == 0
    assert [goal["name"] for goal in ran.document["goals"]] == [
        "idle pickup ms p95, listen <= 5",
        "idle pickup ms p95, poll <= 50",
        "WAL KiB per event <= 1.8",
        "round trips for 100 rows <= 2",
        "keyed events/s >= 15000",
        "keyed events out of order <= 0",
        "keyless held / healthy >= 0.8",
        "keyed held / healthy >= 0.8",
    ]
    assert ran.document["notes"] == {"drain_to_fastest_peer": "no peer was measured"}


async def test_a_peer_that_cannot_be_installed_is_skipped_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReached, match="node and npm are not installed"):
        await running.drain_rate(running.PEERS["graphile"], "postgresql:///none", "{}")
    local = Peer("local", "drain_pgqueuer.py", (str(tmp_path / "no-such-package"),), 1, 1)
    with pytest.raises(NotReached, match=r"python failed: .*no-such-package"):
        await running.drain_rate(local, "postgresql:///none", "{}")
    assert list((tmp_path / "penstock" / "peers").iterdir()) == []


async def test_the_ratio_is_to_the_fastest_peer_that_was_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = {"pgqueuer": 20.0, "awa": 10.0}

    async def drain_rate(peer: Peer, url: str, payload: str) -> float:
        if peer.name not in rates:
            raise NotReached("not here")
        return rates[peer.name]

    monkeypatch.setattr("penstock.bench.outbox.drain_rate", drain_rate)
    report = BenchReport({}, {"drain_per_s": 50.0})
    plan = Plan(peers=("pgqueuer", "awa", "graphile"))
    with throwaway_cluster() as cluster:
        conn = await asyncpg.connect(cluster.url())
        await Bench(cluster, conn, plan, report, lambda _: None).against_peers()
        await conn.close()
    assert report.figures["drain_to_fastest_peer"] == 2.5
    assert [(goal.name, goal.met) for goal in report.goals] == [
        ("drain / fastest peer >= 3", False)
    ]
    assert report.as_json()["notes"] == {"graphile_per_s": "not here"}


async def test_both_ways_of_a_large_batch_publish_the_same(database_url: str) -> None:
    conn = await asyncpg.connect(database_url)
    assert min(await copying.rates(conn, 7, 0.000_001)) > 0
    same = (
        "select count(*) filter (where pos is not null) from public.outbox group by topic, payload"
    )
    assert [row[0] for row in await conn.fetch(same)] == [14]
    await conn.close()


async def test_an_order_that_was_not_kept_is_counted(database_url: str) -> None:
    conn = await asyncpg.connect(database_url)
    await keyed.fill(conn, range(9))
    seen = keyed.Seen()
    async with keyed.application(database_url, seen) as ps:
        await ps.work(only=["outbox"], until_idle=True)
    assert len(seen.ids) == 9
    assert await seen.out_of_order(conn) == 0
    # Three of the nine have one key, the others one each: backwards, two come after a later one.
    assert await keyed.Seen(seen.ids[::-1]).out_of_order(conn) == 2
    await conn.close()
