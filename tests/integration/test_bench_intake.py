"""`penstock bench intake` runs through and measures every part; its rates are not judged here."""

import pytest

from penstock.bench.intake import Plan, bench_intake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_every_part_is_measured() -> None:
    plan = Plan(
        literal_clients=(2, 4),
        literal_s=1.0,
        literal_slots=20_000,
        batches=2,
        connections=8,
        http_s=0.5,
        http_slots=10_000,
        confirmations=500,
        small_pool=400,
        large_pool=2_000,
        healthy_s=1.0,
        pinned_s=2.0,
        pinned_slots=40_000,
        rounds=2,
    )
    said: list[str] = []
    report = await bench_intake(plan, said.append)
    assert {name: value for name, value in report.figures.items() if value <= 0} == {}
    assert [goal.name for goal in report.goals] == [
        "batched / first design at 4 >= 25",
        "batched / bare insert >= 0.4",
        "HTTP / first design at 4 >= 6",
        "large pool / small pool >= 0.8",
        "bridge confirmations/s >= 8000",
        "claims held / healthy >= 0.8",
        "sold-out answer held / healthy <= 1.5",
        "bridge held / healthy >= 0.8",
    ]
    ratio = report.figures["http_claims_per_s"] / report.figures["literal_beside_http_per_s"]
    assert report.figures["http_to_literal"] == pytest.approx(ratio, rel=0.01)
    assert len(said) == 9
