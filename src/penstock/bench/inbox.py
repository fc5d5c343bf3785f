"""Webhooks verified and stored over HTTP, against a handler written by hand; then processed."""

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from time import monotonic, time
from typing import TypeAlias

import asyncpg

from penstock.application import Penstock
from penstock.bench.load import Load, post, run_load
from penstock.bench.receivers import KEY_VARIABLE, PLAIN_TABLE, URL_VARIABLE
from penstock.bench.report import BenchReport, describe_machine
from penstock.inbox.providers.stripe import Stripe
from penstock.kernel.errors import MissingExtra
from penstock.kernel.event import Batch, Event
from penstock.kernel.schema import migrate
from penstock.kernel.tx import Tx
from penstock.postgres import throwaway_cluster

SOURCE = "stripe"
READY_S = 20.0
FILL = 5000
ROUNDS = 5
_FILL = """
select count(*) from webhook.receive(
    array(select penstock.uuidv7() from generate_series(1, $2::int)),
    array_fill($1::uuid, array[$2::int]),
    array(select 'old_' || ($3::bigint + n) from generate_series(1, $2::int) as n),
    array_fill('payment_intent.succeeded'::text, array[$2::int]),
    array_fill($4::bytea, array[$2::int]), array_fill(convert_from($4, 'utf8'), array[$2::int]),
    array_fill(null::text, array[$2::int]), array_fill('{}'::text, array[$2::int]),
    array_fill(sha256($4), array[$2::int]), array_fill('application/json'::text, array[$2::int]),
    array_fill(null::uuid, array[$2::int]))
"""

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure; `quick` shows that it works, not what the machine can do."""

    seconds: float = 10.0
    connections: tuple[int, ...] = (64, 256)
    handled: int = 10_000
    stored: int = 1_000_000

    @classmethod
    def quick(cls) -> "Plan":
        """A few seconds in all."""
        return cls(seconds=1.0, connections=(16,), handled=500, stored=5_000)


async def bench_inbox(plan: Plan, progress: Progress) -> BenchReport:
    """Measure on an embedded, durable server of its own; other databases are not touched."""
    if find_spec("fastapi") is None:
        raise MissingExtra("the handler to compare with needs fastapi", todo="pip install fastapi")
    with throwaway_cluster(durable=True, settings={"max_wal_size": "4GB"}) as cluster:
        url = cluster.url()
        await migrate(url, only="inbox")
        conn = await asyncpg.connect(url)
        try:
            bench = _Bench(url, conn, plan, BenchReport(await describe_machine(conn)), progress)
            await bench.prepare()
            await bench.received()
            await bench.handled()
            await bench.with_many_stored()
        finally:
            await conn.close()
    return bench.report


@dataclass(frozen=True, slots=True)
class _Server:
    """A server under load."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """Processor time it has used; steadier than rates where others share the machine."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Bench:
    """One run: its database, its plan, its report."""

    url: str
    conn: Connection
    plan: Plan
    report: BenchReport
    progress: Progress
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def prepare(self) -> None:
        """A source, and the table of the handler written by hand."""
        await self.conn.execute(PLAIN_TABLE)
        await self.conn.execute(
            "select webhook.put_source($1, $1, array[$2], '{\"max_backlog\": 100000000}', 'bench')",
            SOURCE,
            f"env:{KEY_VARIABLE}",
        )

    async def received(self) -> None:
        """Events per second and latencies of both servers.

        They take turns in short rounds, so that whatever else the machine does falls on both.
        """
        async with self._serving("plain") as plain, self._serving("ours") as ours:
            servers = {"plain": plain, "ours": ours}
            for server in servers.values():
                await self._load(server.port, min(self.plan.connections), 1.0)  # warm, pools full
            for connections in self.plan.connections:
                self.progress(f"{connections} connections: {2 * self.plan.seconds:.0f} s")
                await self._compare(servers, connections)
        widest = max(self.plan.connections)
        figures = self.report.figures
        gain = figures[f"ours_{widest}_events_per_s"] / figures[f"plain_{widest}_events_per_s"]
        self.report.goal(
            f"ours / by hand at {widest}",
            self.report.figure("ours_to_plain", gain),
            bound=">=",
            goal=3.0,
        )

    async def _compare(self, servers: "Mapping[str, _Server]", connections: int) -> None:
        loads = {kind: Load() for kind in servers}
        before = {kind: server.cpu_s() for kind, server in servers.items()}
        for _ in range(ROUNDS):
            for kind, server in servers.items():
                seconds = self.plan.seconds / ROUNDS
                loads[kind].add(await self._load(server.port, connections, seconds))
        for kind, load in loads.items():
            name = f"{kind}_{connections}"
            cpu_s = servers[kind].cpu_s() - before[kind]
            self.report.figure(f"{name}_events_per_s", load.per_s)
            self.report.figure(f"{name}_p50_ms", load.latency_ms(0.5))
            self.report.figure(f"{name}_p99_ms", load.latency_ms(0.99))
            self.report.figure(f"{name}_cpu_us_per_event", cpu_s / load.answered * 1e6)

    async def handled(self) -> None:
        """Events per second through handlers whose effect shares the commit."""
        await self.conn.execute("create table bench_effects (event_id uuid primary key)")
        for kind, register in (("tx", _one_by_one), ("batch_tx", _in_batches)):
            await self.conn.execute("truncate webhook_events, bench_effects")
            await self._fill(self.plan.handled)
            self.progress(f"handlers ({kind}): {self.plan.handled:,} events")
            ps = Penstock(self.url)
            register(ps)
            started = monotonic()
            async with ps:
                await ps.work(only={"inbox"}, until_idle=True)
            seconds = monotonic() - started
            done = await self.conn.fetchval("select count(*) from bench_effects")
            assert done == self.plan.handled, "every event took effect once"
            self.report.figure(f"handled_{kind}_events_per_s", done / seconds)

    async def with_many_stored(self) -> None:
        """The same door with many events behind it."""
        widest = max(self.plan.connections)
        before = self.report.figures[f"ours_{widest}_events_per_s"]
        self.progress(f"with {self.plan.stored:,} events stored: {self.plan.seconds:.0f} s")
        await self._fill(self.plan.stored)
        await self.conn.execute("vacuum analyze webhook_events")
        async with self._serving("ours") as server:
            await self._load(server.port, min(self.plan.connections), 1.0)
            load = await self._load(server.port, widest, self.plan.seconds)
        self.report.figure("stored_events", self.plan.stored)
        after = self.report.figure("with_many_stored_events_per_s", load.per_s)
        self.report.figure("with_many_stored_p99_ms", load.latency_ms(0.99))
        share = self.report.figure("with_many_to_few", after / before)
        self.report.goal("many stored / few", share, bound=">=", goal=0.7)

    async def _load(self, port: int, connections: int, seconds: float) -> Load:
        scheme = Stripe()

        def make() -> bytes:
            body = scheme.sample(f"evt_{next(self.numbers)}", "")
            headers = scheme.sign(self.secret, body, at_s=int(time()))
            return post(
                f"/webhooks/{SOURCE}", body, {"content-type": "application/json", **headers}
            )

        load = await run_load(port, connections, seconds=seconds, make=make)
        assert set(load.statuses) == {200}, f"answers: {dict(load.statuses)}"
        return load

    async def _fill(self, events: int) -> None:
        webhook_id = await self.conn.fetchval("select id from webhook_endpoints")
        body = Stripe().sample("evt_old", "")
        for start in range(0, events, FILL):
            size = min(FILL, events - start)
            await self.conn.execute(_FILL, webhook_id, size, next(self.numbers) * 10**7, body)

    @asynccontextmanager
    async def _serving(self, kind: str) -> "AsyncIterator[_Server]":
        with socket.create_server(("127.0.0.1", 0), backlog=2048) as taken:
            port: int = taken.getsockname()[1]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock.bench.receivers",
                kind,
                str(taken.fileno()),
                pass_fds=(taken.fileno(),),
                env={**os.environ, URL_VARIABLE: self.url, KEY_VARIABLE: self.secret},
            )
            try:
                yield _Server(port, process.pid)
            finally:
                process.terminate()
                await asyncio.wait_for(process.wait(), READY_S)


def _one_by_one(ps: Penstock) -> None:
    @ps.inbox.on(SOURCE)
    async def take(event: Event[dict[str, object]], tx: Tx) -> None:
        await tx.execute("insert into bench_effects values ($1)", event.id)


def _in_batches(ps: Penstock) -> None:
    @ps.inbox.on_batch(SOURCE, size=500)
    async def take(events: Batch[dict[str, object]], tx: Tx) -> None:
        ids = [event.id for event in events]
        await tx.execute("insert into bench_effects select unnest($1::uuid[])", ids)
