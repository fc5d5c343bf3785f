"""Workers killed at every named place, stopped past their lease, poisoned, drained."""

import json
import signal
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.history import assert_history
from tests.support.outbox import SqlOutbox
from tests.support.waiting import until, until_true
from tests.support.worker_program import EXIT_CODE
from tests.support.workers import Fleet

pytestmark = pytest.mark.fault

PLAIN_POINTS = ["after_claim", "before_effect", "after_effect", "before_finish", "after_finish"]
TX_POINTS = ["before_effect", "after_effect", "mid_finish"]


async def _publish(
    outbox: SqlOutbox, count: int = 1, *, topic: str = "plain", **payload: object
) -> list[UUID]:
    query = "select app.outbox_publish(null, $1, $2::jsonb)"
    text = json.dumps(payload)
    return [await outbox.conn.fetchval(query, topic, text) for _ in range(count)]


async def _ended(outbox: SqlOutbox, ids: list[UUID]) -> bool:
    open_count: int = await outbox.conn.fetchval(
        "select count(*) from public.outbox where id = any ($1) and dead_at is null", ids
    )
    return open_count == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topic", "points"), [("plain", PLAIN_POINTS), ("tx", TX_POINTS)], ids=["plain", "tx"]
)
async def test_killed_at_every_point_nothing_is_lost(
    fleet: Fleet, outbox: SqlOutbox, topic: str, points: list[str]
) -> None:
    ids = await _publish(outbox, 6, topic=topic)
    for point in points:
        ids += await _publish(outbox, 1, topic=topic)
        worker = fleet.start(penstock_failpoints=f"{point}=kill")
        assert await worker.ended(within_s=30) == -signal.SIGKILL, f"it died at {point}"
    healthy = await fleet.start().working()
    await until(lambda: _ended(outbox, ids), "everything ended", within_s=20)
    await healthy.drained()
    states = {await outbox.state(event) for event in ids}
    assert states == {"DELIVERED"}
    if topic == "plain":
        await assert_history(outbox.conn, ids, downstream=fleet.downstream)
        return
    await assert_history(outbox.conn, ids)
    effects = await outbox.conn.fetch("select event_id from public.effects")
    assert sorted(row["event_id"] for row in effects) == sorted(ids), "each effect exactly once"


async def test_a_worker_stopped_past_its_lease_is_refused(
    fleet: Fleet, outbox: SqlOutbox, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    first = await fleet.start().working()
    ids = await _publish(outbox, 1, do="gate", gate=str(gate))
    await until_true(lambda: fleet.downstream.calls("started"), "the first worker is at it")
    first.send(signal.SIGSTOP)
    gate.touch()
    second = await fleet.start().working()
    await until(lambda: _ended(outbox, ids), "the second worker took over and delivered")
    first.send(signal.SIGCONT)
    await until_true(lambda: first.observed("finish_refused"), "the first one was refused")
    await first.drained()
    await second.drained()
    rows = await outbox.conn.fetch("select item_id, verdict from penstock.late_results")
    assert [(row["item_id"], row["verdict"]) for row in rows] == [(ids[0], "done")]
    assert set(fleet.downstream.per_key("done")) == {str(ids[0])}, "one key, however often called"
    await assert_history(outbox.conn, ids, downstream=fleet.downstream)


@pytest.mark.slow
async def test_a_poisonous_event_dies_and_its_neighbours_do_not(
    fleet: Fleet, outbox: SqlOutbox
) -> None:
    await outbox.policy(max_attempts=3)
    neighbours = await _publish(outbox, 3)
    (poison,) = await _publish(outbox, 1, do="exit")
    neighbours += await _publish(outbox, 3)
    ids = [*neighbours, poison]
    for _ in range(3):
        worker = fleet.start(penstock_concurrency=1)
        assert await worker.ended(within_s=30) == EXIT_CODE
    healthy = await fleet.start().working()
    await until(lambda: _ended(outbox, ids), "everything ended", within_s=20)
    await healthy.drained()
    assert await outbox.state(poison) == "DEAD"
    assert {await outbox.state(event) for event in neighbours} == {"DELIVERED"}
    await assert_history(outbox.conn, ids, downstream=fleet.downstream)


async def test_a_terminated_worker_drains(fleet: Fleet, outbox: SqlOutbox, tmp_path: Path) -> None:
    """Two run, the rest is claimed and waits: the two end, the rest is given back uncounted."""
    gate = tmp_path / "gate"
    ids = await _publish(outbox, 2, do="gate", gate=str(gate))
    ids += await _publish(outbox, 8)
    worker = await fleet.start(penstock_concurrency=2).working()
    await until_true(lambda: len(fleet.downstream.calls("started")) == 2, "two are running")

    async def leased() -> int:
        count: int = await outbox.conn.fetchval("select leased from app.outbox_stats")
        return count

    async def more_than_run() -> bool:
        return await leased() > 2

    async def given_back() -> bool:
        return await leased() == 2

    # Only what has to be given back shows that the signal has arrived.
    await until(more_than_run, "more is claimed than runs")
    worker.send(signal.SIGTERM)
    await until(given_back, "only what runs is still leased")
    gate.touch()
    report = await worker.drained()
    assert (report["finished"], report["stale"], report["abandoned"]) == (2, 0, 0)
    assert len(fleet.downstream.calls("done")) == 2
    rows = await outbox.conn.fetch("select attempts from public.outbox")
    assert [row["attempts"] for row in rows] == [0] * 8
    assert await outbox.conn.fetchval("select count(*) from penstock.worker") == 0
    await assert_history(outbox.conn, ids, quiet=False, downstream=fleet.downstream)


async def test_a_worker_that_does_not_end_in_time_gives_back_what_it_runs(
    fleet: Fleet, outbox: SqlOutbox
) -> None:
    ids = await _publish(outbox, 1, do="gate", gate="/nonexistent/gate")
    worker = await fleet.start(penstock_drain_s=0.5).working()
    await until_true(lambda: fleet.downstream.calls("started"), "it runs")
    report = await worker.drained()
    assert (report["finished"], report["released"]) == (0, 1)
    row = await outbox.conn.fetchrow("select attempts, pos from public.outbox")
    assert row is not None
    assert row["attempts"] == 0
    assert row["pos"] is not None
    await assert_history(outbox.conn, ids, quiet=False)


@pytest.mark.parametrize("shift_s", [3600, -3600])
async def test_a_wrong_clock_of_the_worker_has_no_effect(
    fleet: Fleet, outbox: SqlOutbox, tmp_path: Path, shift_s: int
) -> None:
    gate = tmp_path / "gate"
    wrong = await fleet.start(test_clock_s=shift_s).working()
    slow = await _publish(outbox, 1, do="gate", gate=str(gate))
    ids = await _publish(outbox, 3) + slow
    ids += await _publish(outbox, 1, do="retry", after_s=0)
    await until(lambda: _ended(outbox, ids[:3]), "the quick ones are delivered", within_s=5)
    await until(lambda: _past(outbox, slow[0], 1.5), "the slow one has outlived its first lease")
    gate.touch()
    await until(lambda: _ended(outbox, slow), "the slow one is delivered", within_s=5)
    assert wrong.observed("lease_lost") == []
    epoch = "select lease_epoch from public.outbox_archive where id = $1"
    assert await outbox.conn.fetchval(epoch, slow[0]) == 1
    await wrong.drained()


async def _past(outbox: SqlOutbox, event: UUID, seconds: float) -> bool:
    return bool(
        await outbox.conn.fetchval(
            "select clock_timestamp() > created_at + make_interval(secs => $2)"
            " from public.outbox where id = $1",
            event,
            seconds,
        )
    )
