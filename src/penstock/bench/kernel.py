"""The pump against the same SQL driven bare, what an item costs in WAL, and a held snapshot."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

import asyncpg

from penstock.application import Penstock
from penstock.bench.report import BenchReport, describe_machine
from penstock.kernel.event import Event
from penstock.kernel.schema import migrate
from penstock.postgres import throwaway_cluster

TOPIC = "bench.noop"
PAYLOAD = '{"order_id": 42, "amount": "9.90", "customer": "a name of ordinary length", "lines": 3}'
BATCH = 500
FEED = 2_000
FEED_AHEAD = 20_000

_PUBLISH = (
    "select app.outbox_publish_many($2, (select jsonb_agg(jsonb_build_array(null, $3::text::jsonb))"
    " from generate_series(1, $1::int)))"
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure; `quick` shows that it works, not what the machine can do."""

    items: int = 200_000
    healthy_s: float = 15.0
    pinned_s: float = 60.0

    @classmethod
    def quick(cls) -> "Plan":
        """A few seconds in all."""
        return cls(items=10_000, healthy_s=2.0, pinned_s=4.0)


async def bench_kernel(plan: Plan, progress: Progress) -> BenchReport:
    """Measure on an embedded, durable server of its own; other databases are not touched."""
    with throwaway_cluster(durable=True, settings={"max_wal_size": "4GB"}) as cluster:
        url = cluster.url()
        await migrate(url, only="outbox")
        conn = await asyncpg.connect(url)
        try:
            report = BenchReport(await describe_machine(conn))
            await _drained_backlog(url, conn, plan, report=report, progress=progress)
            await _under_aheld_snapshot(url, conn, plan, report=report, progress=progress)
        finally:
            await conn.close()
    return report


async def _drained_backlog(
    url: str, conn: Connection, plan: Plan, *, report: BenchReport, progress: Progress
) -> None:
    progress(f"bare SQL: {plan.items:,} items, two connections")
    await publish(conn, plan.items)
    bare = report.figure("bare_items_per_s", plan.items / await timed(_drive_bare(url)))
    progress(f"pump: {plan.items:,} items, no-op handler")
    await publish(conn, plan.items)
    before = await conn.fetchval("select pg_current_wal_lsn()")
    pump = report.figure("pump_items_per_s", plan.items / await timed(_drive_pump(url)))
    wal = await conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", before)
    report.figure("wal_bytes_per_item", float(wal) / plan.items)
    report.goal("pump / bare", report.figure("pump_to_bare", pump / bare), bound=">=", goal=0.7)


async def _under_aheld_snapshot(
    url: str, conn: Connection, plan: Plan, *, report: BenchReport, progress: Progress
) -> None:
    progress(f"healthy, fed while drained: {plan.healthy_s:.0f} s")
    healthy = report.figure("fed_items_per_s", await _fed_rate(url, conn, plan.healthy_s))
    progress(f"with a snapshot held open: {plan.pinned_s:.0f} s")
    async with held_snapshot(url):
        # The last quarter counts: what a forgotten transaction costs grows with time.
        early = await _fed_rate(url, conn, plan.pinned_s * 3 / 4)
        late = await _fed_rate(url, conn, plan.pinned_s / 4)
    report.figure("held_early_items_per_s", early)
    report.figure("held_late_items_per_s", late)
    report.figure("held_s", plan.pinned_s)
    report.goal(
        "held / healthy", report.figure("held_to_healthy", late / healthy), bound=">=", goal=0.8
    )


async def publish(conn: Connection, count: int) -> None:
    """Publish so many events in large statements, and let the planner know."""
    for start in range(0, count, 20_000):
        size = min(20_000, count - start)
        await conn.execute(_PUBLISH, size, TOPIC, PAYLOAD)
    await conn.execute("vacuum (analyze) public.outbox")


async def timed(work: Awaitable[object]) -> float:
    """How many seconds it took."""
    started = monotonic()
    await work
    return monotonic() - started


async def _drive_bare(url: str) -> None:
    """The limit: claim and finish in a loop, on as many connections as a pump keeps busy."""
    await asyncio.gather(_drive_one(url), _drive_one(url))


async def _drive_one(url: str) -> None:
    conn = await asyncpg.connect(url)
    while rows := await conn.fetch("select * from app.outbox_claim($1, $2)", BATCH, uuid4()):
        await conn.fetch(
            "select * from app.outbox_finish($1, $2, $3)",
            [row["seq"] for row in rows],
            [row["id"] for row in rows],
            [row["processing_token"] for row in rows],
        )
    await conn.close()


async def _drive_pump(url: str) -> None:
    async with noop_app(url) as ps:
        await ps.work(until_idle=True)


def noop_app(url: str) -> Penstock:
    """An application with one handler that does nothing."""
    ps = Penstock(url)

    async def noop(event: Event[dict[str, object]]) -> None:
        del event

    ps.outbox.topic(TOPIC, dict[str, object]).on(concurrency=8)(noop)
    return ps


async def _fed_rate(url: str, conn: Connection, seconds: float) -> float:
    """Items drained per second while a producer keeps the queue from running dry."""
    before = await conn.fetchval("select count(*) from public.outbox_archive")
    feeding = asyncio.create_task(feed(url))
    async with noop_app(url) as ps:
        await ps.work(deadline_s=seconds)
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    after = await conn.fetchval("select count(*) from public.outbox_archive")
    return float(after - before) / seconds


async def feed(url: str) -> None:
    """Keep enough events ready, until cancelled."""
    conn = await asyncpg.connect(url)
    try:
        while True:
            ahead = await conn.fetchval(
                "select pg_sequence_last_value('penstock.outbox_next')"
                " - pg_sequence_last_value('penstock.outbox_wm')"
            )
            if ahead > FEED_AHEAD:
                await asyncio.sleep(0.01)
                continue
            await conn.execute(_PUBLISH, FEED, TOPIC, PAYLOAD)
    finally:
        await conn.close()


@asynccontextmanager
async def held_snapshot(url: str) -> AsyncIterator[None]:
    """Keep a snapshot open while the block runs, as a forgotten transaction does."""
    conn = await asyncpg.connect(url)
    transaction = conn.transaction(isolation="repeatable_read", readonly=True)
    await transaction.start()
    await conn.fetchval("select count(*) from public.outbox")
    try:
        yield
    finally:
        await transaction.rollback()
        await conn.close()
