"""Payments: what enqueue, claim and dispatch cost by participants, against bare SQL."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from time import monotonic
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg

from penstock.application import Penstock
from penstock.bench.payments_history import measure_history
from penstock.bench.report import BenchReport, describe_machine
from penstock.kernel.schema import migrate
from penstock.payments import store
from penstock.payments.instruction import Instruction
from penstock.payments.model import Claimed, Ending, EndState, NewPayment
from penstock.payments.rails import RailOutcome, Sent
from penstock.payments.succession import finish_paid_and_claim
from penstock.postgres import Cluster, throwaway_cluster

PAYLOAD = '{"amount": 1050, "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}'
RAIL = "bench"
BATCH = 500
WINDOW = timedelta(hours=24)
# Longer than a worker goes on looking often after its last item: then only a wake-up is quick.
IDLE_S = 2.2

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to do at each number of participants; `quick` shows only that it works."""

    single: int = 1_500
    ten: int = 10_000
    thousand: int = 40_000
    backlog: int = 100_000
    idle: int = 20
    history: int = 10_000_000

    @classmethod
    def quick(cls) -> "Plan":
        """A few seconds in all."""
        return cls(single=50, ten=200, thousand=1_000, backlog=2_000, idle=2, history=4_000)


class _Instant:
    """A rail that pays at once and remembers when it was called."""

    def __init__(self) -> None:
        self.called_at = 0.0
        self.called = asyncio.Event()

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        """Pay."""
        del instruction, key
        self.called_at = monotonic()
        self.called.set()
        return Sent("bench")


@dataclass(slots=True)
class _Bench:
    """One run on one database."""

    url: str
    conn: Connection
    report: BenchReport
    progress: Progress
    made: int = 0

    async def enqueue(self, count: int, participants: int) -> float:
        """Enqueue so many, a thousand per call; returns seconds."""
        started = monotonic()
        for start in range(0, count, 1000):
            new = [
                NewPayment(f"i{self.made + n}", f"p{n % participants:05}", "k", RAIL, PAYLOAD)
                for n in range(start, min(start + 1000, count))
            ]
            await store.enqueue_many(self.conn, new)
        self.made += count
        return monotonic() - started

    async def compare(self, count: int, participants: int) -> float:
        """The relayer against the same SQL driven bare; returns dispatches per second."""
        name = f"at_{participants}_participants"
        self.progress(f"{count:,} payments of {participants:,} participants")
        took_s = await self.enqueue(count, participants)
        self.report.figure(f"enqueues_per_s_{name}", count / took_s)
        await self._settle()
        self.report.figure(f"bare_per_s_{name}", count / await _timed(self._drive_bare()))
        before = await self.conn.fetchval("select pg_current_wal_lsn()")
        await self.enqueue(count, participants)
        await self._settle()
        rate = count / await _timed(self._drive())
        wal = await self.conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", before)
        self.report.figure(f"wal_bytes_per_payment_{name}", float(wal) / count)
        return self.report.figure(f"dispatches_per_s_{name}", rate)

    async def _settle(self) -> None:
        await self.conn.execute("vacuum (analyze) public.payment_outbox_pending")

    async def _drive(self) -> None:
        async with _application(self.url, _Instant()) as ps:
            await ps.work(only=["payments"], until_idle=True)
        left = await self.conn.fetchval("select count(*) from public.payment_outbox_pending")
        assert not left, f"{left} payments were left over: no rate can be told"

    async def _drive_bare(self) -> None:
        """Claim, leave to send and finish in a loop, on two connections."""
        await asyncio.gather(_bare(self.url), _bare(self.url))

    async def backlog(self, count: int) -> float:
        """Milliseconds of a claim where one participant has a long backlog, and history is long."""
        self.progress(f"one participant with {count:,} payments waiting")
        await self.enqueue(count, 1)
        await self._settle()
        times: list[float] = []
        for _ in range(20):
            started = monotonic()
            found = await store.claim(self.conn, limit=BATCH, owner=uuid4())
            times.append((monotonic() - started) * 1000)
            await store.release(self.conn, found.payments)
        return self.report.figure("claim_ms_with_backlog", sorted(times)[len(times) // 2])

    async def idle(self, count: int) -> None:
        """How long from the commit of an enqueue to the rail's call, with nothing else to do."""
        self.progress(f"{count} payments one by one, idle in between")
        rail = _Instant()
        waits_ms: list[float] = []
        async with _application(self.url, rail) as ps:
            work = asyncio.create_task(ps.work(only=["payments"]))
            await asyncio.sleep(1)  # let it start and listen; nothing is measured yet
            for number in range(count):
                new = NewPayment(f"idle{self.made}-{number}", f"q{number}", "k", RAIL, PAYLOAD)
                rail.called.clear()
                await store.enqueue(self.conn, new)
                committed = monotonic()
                await rail.called.wait()
                # Called before the enqueue's own answer was read counts as no wait at all.
                waits_ms.append(max(0.0, rail.called_at - committed) * 1000)
                await asyncio.sleep(IDLE_S)
            ps.stop()
            await work
        ordered = sorted(waits_ms)
        self.report.figure("enqueue_to_rail_ms_p50", ordered[len(ordered) // 2])
        self.report.figure("enqueue_to_rail_ms_p95", ordered[ceil(len(ordered) * 0.95) - 1])


async def bench_payments(plan: Plan, progress: Progress) -> BenchReport:
    """Measure on an embedded, durable server of its own; other databases are not touched."""
    with throwaway_cluster(durable=True, settings={"max_wal_size": "4GB"}) as cluster:
        url = cluster.url()
        await migrate(url, only="payments")
        conn = await asyncpg.connect(url)
        try:
            report = BenchReport(await describe_machine(conn))
            bench = _Bench(url, conn, report, progress)
            await bench.idle(plan.idle)
            one = await bench.compare(plan.single, 1)
            await bench.compare(plan.ten, 10)
            thousand = await bench.compare(plan.thousand, 1000)
            claim_ms = await bench.backlog(plan.backlog)
        finally:
            await conn.close()
        growth = await _history(cluster, plan.history, report=report, progress=progress)
    report.goal("dispatches/s at 1,000 participants", thousand, bound=">=", goal=7_000)
    report.goal("dispatches/s at one participant", one, bound=">=", goal=400)
    report.goal("claim ms with a long backlog", claim_ms, bound="<=", goal=5)
    report.goal("a claim with long history, times one with short", growth, bound="<=", goal=1.5)
    return report


async def _history(
    cluster: Cluster, count: int, *, report: BenchReport, progress: Progress
) -> float:
    """On a database of its own: the rates are measured without ten million rows beside them."""
    conn = await asyncpg.connect(cluster.url())
    await conn.execute("create database history")
    await conn.close()
    url = cluster.url("history")
    await migrate(url, only="payments")
    conn = await asyncpg.connect(url)
    try:
        return await measure_history(conn, count, report=report, progress=progress)
    finally:
        await conn.close()


def _application(url: str, rail: _Instant) -> Penstock:
    ps = Penstock(url)
    ps.payments.rail(RAIL, rail, key_window=WINDOW, concurrency=256)
    return ps


def _paid(payment: Claimed) -> Ending:
    return Ending(
        payment.outbox_id, payment.lease_token, EndState.DISPATCHED, delay_s=0.0, latency_ms=0
    )


async def _timed(work: Awaitable[object]) -> float:
    started = monotonic()
    await work
    return monotonic() - started


async def _bare(url: str) -> None:
    """The same protocol: while a claim has gone round, whoever ends one takes its next."""
    conn = await asyncpg.connect(url)
    owner = uuid4()
    after = ""
    misses = 0
    # The other connection may hold what is left: give up only when that has lasted.
    while misses < 3:
        found = await store.claim(conn, limit=BATCH, owner=owner, after=after)
        after = found.cursor
        if not found.payments:
            misses += found.idle
            continue
        misses = 0
        payments = found.payments
        while payments:
            await store.mark_sent(conn, payments)
            paid = [_paid(payment) for payment in payments]
            _, payments = await finish_paid_and_claim(conn, paid, owner=owner)
    await conn.close()
