"""Claims against the first design of the sale and the bare insert; the bridge; a held snapshot."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from penstock.bench.load import Load
from penstock.bench.pgbench import Script, run_calls, run_for
from penstock.bench.report import BenchReport, describe_machine
from penstock.bench.sale import ENGINE_DB, LITERAL_DB, TEND_EVERY_S, Sale
from penstock.postgres import throwaway_cluster

PAIR = 2  # connections that the front door keeps busy
BATCH = 1_000
SMALL_BATCH = 100
SINGLE_CLIENTS = 8
SOLD_OUT_ASKED = 200
_SETTINGS = {"max_connections": "260", "max_wal_size": "4GB", "shared_buffers": "256MB"}
_SOLD_OUT = "select public.claim_resource_and_queue($1, 'late')"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure; `quick` shows that it works, not what the machine can do."""

    literal_clients: tuple[int, int] = (16, 200)
    literal_s: float = 10.0
    literal_slots: int = 200_000
    batches: int = 100
    connections: int = 256
    http_s: float = 12.0
    http_slots: int = 100_000
    confirmations: int = 50_000
    small_pool: int = 10_000
    large_pool: int = 1_000_000
    healthy_s: float = 15.0
    pinned_s: float = 60.0
    pinned_slots: int = 1_000_000
    rounds: int = 3

    @classmethod
    def quick(cls) -> "Plan":
        """A few seconds in all."""
        return cls(
            literal_clients=(4, 16),
            literal_s=1.0,
            literal_slots=20_000,
            batches=3,
            connections=32,
            http_s=1.0,
            http_slots=30_000,
            confirmations=2_000,
            small_pool=1_000,
            large_pool=10_000,
            healthy_s=1.0,
            pinned_s=2.0,
            pinned_slots=40_000,
        )


async def bench_intake(plan: Plan, progress: Progress) -> BenchReport:
    """Measure on embedded, durable servers of its own; other databases are not touched."""
    with (
        throwaway_cluster(name="engine", durable=True, settings=_SETTINGS) as engine,
        throwaway_cluster(name="ledger", durable=True, settings={"max_wal_size": "4GB"}) as ledger,
    ):
        async with Sale.opened(engine, ledger) as sale:
            report = BenchReport(await describe_machine(sale.conn))
            bench = _Bench(sale, plan, report, progress)
            await bench.first_design()
            async with sale.tended():
                await bench.in_batches()
                await bench.over_http()
                await bench.pool_sizes()
            await bench.confirmed()
            await bench.under_a_held_snapshot()
    return report


@dataclass(slots=True)
class _Bench:
    """One run: its servers, its plan, its report."""

    sale: Sale
    plan: Plan
    report: BenchReport
    progress: Progress

    async def first_design(self) -> None:
        """The seed's function as it is written, one claim per call."""
        for clients in self.plan.literal_clients:
            self.progress(f"first design, {clients} clients: {self.plan.literal_s:.0f} s")
            rate = await self._literal(clients, self.plan.literal_s)
            self.report.figure(f"literal_{clients}_claims_per_s", rate)

    async def _literal(self, clients: int, seconds: float) -> float:
        pool = await self.sale.stocked_literal(self.plan.literal_slots)
        rate = await run_for(
            self.sale.engine,
            LITERAL_DB,
            Script("claim", pool),
            clients=clients,
            seconds=seconds,
        )
        assert await self.sale.left(self.sale.literal, pool), "the first design sold out"
        return rate

    async def in_batches(self) -> None:
        """Our function in batches, and the least that any such claim must write."""
        rounds = self.plan.rounds
        calls = self.plan.batches // rounds
        claims = calls * PAIR * BATCH
        widest = max(self.plan.literal_clients)
        self.progress(f"batches of {BATCH}, bare inserts and the first design, in turns")
        ours = bare = literal = 0.0
        for _ in range(rounds):
            literal += await self._literal(widest, self.plan.literal_s / rounds) / rounds
            pool = await self.sale.stocked(claims)
            await self.sale.cleared()
            ours += await self._calls("reserve", pool, size=BATCH, calls=calls) / rounds
            assert await self.sale.left(self.sale.conn, pool) == 0, "each call reserved its batch"
            await self.sale.cleared()
            bare += await self._calls("insert", pool, size=BATCH, calls=calls) / rounds
            await self.sale.cleared()
        report = self.report
        report.figure("batched_claims_per_s", ours)
        report.figure("bare_inserts_per_s", bare)
        report.figure("literal_beside_batched_per_s", literal)
        gain = report.figure("batched_to_literal", ours / literal)
        report.goal(f"batched / first design at {widest}", gain, bound=">=", goal=25)
        share = report.figure("batched_to_bare", ours / bare)
        report.goal("batched / bare insert", share, bound=">=", goal=0.4)

    async def over_http(self) -> None:
        """Claims over HTTP: grouped as served, in turns with the first design, and one by one."""
        connections, seconds, rounds = self.plan.connections, self.plan.http_s, self.plan.rounds
        widest = max(self.plan.literal_clients)
        self.progress(f"HTTP grouped, {connections} connections, and the first design, in turns")
        grouped, literal = Load(), 0.0
        async with self.sale.served(group_max=BATCH) as port:
            for _ in range(rounds):
                literal += await self._literal(widest, seconds / rounds) / rounds
                grouped.add(await self._crowd(port, seconds / rounds))
        self.progress(f"HTTP one by one, {connections} connections: {seconds / 2:.0f} s")
        async with self.sale.served(group_max=1) as port:
            single = await self._crowd(port, seconds / 2)
        report = self.report
        for name, load in (("http", grouped), ("http_single", single)):
            report.figure(f"{name}_claims_per_s", load.per_s)
            report.figure(f"{name}_p50_ms", load.latency_ms(0.5))
            report.figure(f"{name}_p99_ms", load.latency_ms(0.99))
        report.figure("grouped_to_single", grouped.per_s / single.per_s)
        report.figure("literal_beside_http_per_s", literal)
        gain = report.figure("http_to_literal", grouped.per_s / literal)
        report.goal(f"HTTP / first design at {widest}", gain, bound=">=", goal=6)

    async def _crowd(self, port: int, seconds: float) -> Load:
        pool = await self.sale.stocked(self.plan.http_slots)
        await self.sale.cleared()
        await self.sale.crowd(port, pool, connections=16, seconds=0.3)  # connections are open
        load = await self.sale.crowd(port, pool, connections=self.plan.connections, seconds=seconds)
        assert await self.sale.left(self.sale.conn, pool), "the pool was sold out"
        return load

    async def pool_sizes(self) -> None:
        """The same claims from a small and from a large pool, in turns."""
        small, large = self.plan.small_pool, self.plan.large_pool
        self.progress(f"pools of {small:,} and {large:,} slots, in turns")
        calls = small // PAIR // SMALL_BATCH
        big = await self.sale.stocked(large)
        rates: dict[str, list[float]] = {"small": [], "large": []}
        for _ in range(self.plan.rounds):
            for kind in rates:
                pool = big if kind == "large" else await self.sale.stocked(small)
                await self.sale.cleared()
                rate = await self._calls("reserve", pool, size=SMALL_BATCH, calls=calls)
                rates[kind].append(rate)
        best = {kind: max(found) for kind, found in rates.items()}
        self.report.figure("small_pool_claims_per_s", best["small"])
        self.report.figure("large_pool_claims_per_s", best["large"])
        share = self.report.figure("large_to_small_pool", best["large"] / best["small"])
        self.report.goal("large pool / small pool", share, bound=">=", goal=0.8)

    async def confirmed(self) -> None:
        """Confirmations over two databases, by one worker."""
        self.progress(f"bridge: {self.plan.confirmations:,} confirmations over two databases")
        await self.sale.cleared()
        await self.sale.filled(self.plan.confirmations)
        rate = self.report.figure("bridge_confirmations_per_s", await self.sale.bridged())
        self.report.goal("bridge confirmations/s", rate, bound=">=", goal=8_000)

    async def under_a_held_snapshot(self) -> None:
        """Claims, sold-out answers and the bridge while nothing can be vacuumed."""
        plan, report = self.plan, self.report
        async with self.sale.tended():
            self.progress(f"single claims, healthy: {plan.healthy_s:.0f} s")
            pool = await self.sale.stocked(plan.pinned_slots)
            healthy = report.figure(
                "single_claims_per_s", await self._singles(pool, plan.healthy_s)
            )
            report.figure("sold_out_ms", await self._sold_out_ms())
        await self.sale.bridged()
        async with self.sale.held_snapshot():
            self.progress(f"with a snapshot held open: {plan.pinned_s:.0f} s, then the bridge")
            async with self.sale.tended():
                # The last quarter counts: what a forgotten transaction costs grows with time.
                early = await self._singles(pool, plan.pinned_s * 3 / 4)
                late = await self._singles(pool, plan.pinned_s / 4)
                assert await self.sale.left(self.sale.conn, pool), "the pool was sold out"
                report.figure("held_sold_out_ms", await self._sold_out_ms())
            await self.sale.bridged()
            await self.sale.filled(plan.confirmations)
            bridge = report.figure("held_bridge_confirmations_per_s", await self.sale.bridged())
        report.figure("held_early_single_claims_per_s", early)
        report.figure("held_late_single_claims_per_s", late)
        report.figure("held_s", plan.pinned_s)
        claims = report.figure("held_to_healthy_claims", late / healthy)
        report.goal("claims held / healthy", claims, bound=">=", goal=0.8)
        no = report.figures["held_sold_out_ms"] / report.figures["sold_out_ms"]
        report.goal(
            "sold-out answer held / healthy",
            report.figure("held_to_healthy_sold_out", no),
            bound="<=",
            goal=1.5,
        )
        before = report.figures["bridge_confirmations_per_s"]
        share = report.figure("held_to_healthy_bridge", bridge / before)
        report.goal("bridge held / healthy", share, bound=">=", goal=0.8)

    async def _calls(self, script: str, pool: str, *, size: int, calls: int) -> float:
        return await run_calls(
            self.sale.engine, ENGINE_DB, Script(script, pool, size), clients=PAIR, calls=calls
        )

    async def _singles(self, pool: str, seconds: float) -> float:
        return await run_for(
            self.sale.engine,
            ENGINE_DB,
            Script("claim", pool),
            clients=SINGLE_CLIENTS,
            seconds=seconds,
        )

    async def _sold_out_ms(self) -> float:
        """What a "no" costs once a pool of the small size is sold."""
        pool = await self.sale.stocked(self.plan.small_pool)
        calls = self.plan.small_pool // PAIR // SMALL_BATCH
        await self._calls("reserve", pool, size=SMALL_BATCH, calls=calls)
        await asyncio.sleep(2 * TEND_EVERY_S)  # until then a no costs as much as the pool is long
        started = monotonic()
        for _ in range(SOLD_OUT_ASKED):
            assert await self.sale.conn.fetchval(_SOLD_OUT, pool) is None
        return (monotonic() - started) / SOLD_OUT_ASKED * 1000
