"""The outbox from publish to handler, beside other queues on the same server in the same run."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, repeat
from time import monotonic
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import msgspec

from penstock.application import Penstock
from penstock.bench import copying, keyed
from penstock.bench.disk import disk_of, share_of
from penstock.bench.kernel import (
    PAYLOAD,
    TOPIC,
    feed,
    held_snapshot,
    noop_app,
    publish,
    timed,
)
from penstock.bench.peers.running import PEERS, NotReached, drain_rate
from penstock.bench.report import BenchReport, describe_machine
from penstock.kernel.event import Event
from penstock.kernel.queue import Outcome
from penstock.kernel.schema import migrate
from penstock.kernel.settings import Settings, with_values
from penstock.kernel.verdict import DONE
from penstock.outbox.queue import OutboxQueue
from penstock.postgres import Cluster, throwaway_cluster

# Longer than a worker goes on looking often after its last event: then only a wake-up is quick.
IDLE_S = 2.2
CHUNK = 1_000
PRODUCERS = 8
ROWS = 100
MIGRATED = "migrated"

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure; `quick` shows that it works, not what the machine can do."""

    items: int = 200_000
    publish_s: float = 3.0
    batch: int = 50_000
    idle: int = 30
    keyed: int = 1_000_000
    keyed_s: float = 15.0
    healthy_s: float = 10.0
    pinned_s: float = 60.0
    peers: tuple[str, ...] = tuple(PEERS)

    @classmethod
    def quick(cls) -> "Plan":
        """A few seconds in all, without peers: nothing is downloaded."""
        return cls(
            items=5_000,
            publish_s=0.3,
            batch=2_000,
            idle=2,
            keyed=6_000,
            keyed_s=3.0,
            healthy_s=1.0,
            pinned_s=2.0,
            peers=(),
        )


async def bench_outbox(plan: Plan, progress: Progress) -> BenchReport:
    """Measure on an embedded, durable server of its own; other databases are not touched."""
    with throwaway_cluster(durable=True, settings={"max_wal_size": "4GB"}) as cluster:
        conn = await asyncpg.connect(cluster.url())
        try:
            await conn.execute(f"create database {MIGRATED}")
            await migrate(cluster.url(MIGRATED), only="outbox")
            report = BenchReport(await describe_machine(conn))
            bench = Bench(cluster, conn, plan, report, progress)
            await bench.idle()
            await bench.drained()
            await bench.against_peers()
            await bench.published()
            await bench.keyed()
            await bench.held()
        finally:
            await conn.close()
    return report


@dataclass(slots=True)
class Bench:
    """One run: its server, its plan, its report. Every part has a database of its own."""

    cluster: Cluster
    admin: Connection
    plan: Plan
    report: BenchReport
    progress: Progress
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def idle(self) -> None:
        """From the commit of a publish to the handler's call, with nothing else to do."""
        self.progress(f"{self.plan.idle} events one by one, idle in between")
        listen = _Pickup(await self._database(), listen=True)
        poll = _Pickup(await self._database(), listen=False)
        # Both wait at the same time, each for its own event: they do not disturb each other.
        async with listen.app, poll.app:
            for pickup in (listen, poll):
                await pickup.start()
            with disk_of(self.cluster.data_dir) as disk:
                for turn in range(self.plan.idle):
                    # At all moments between two polls: one that kept step would look better, or
                    # worse.
                    await asyncio.sleep(IDLE_S + turn * 7 % 40 / 1000)
                    await listen.sample()
                    await poll.sample()
                    await disk.sample()
            for pickup in (listen, poll):
                await pickup.stop()
        # A pickup waits for the commit of its claim, so its figures are read beside these.
        for share in (50, 95):
            self.report.figure(f"disk_sync_p{share}_ms", disk.latency_ms(share / 100))
        for name, pickup, goal_ms in (("listen", listen, 5.0), ("poll", poll, 50.0)):
            self.report.figure(f"pickup_{name}_p50_ms", pickup.latency_ms(0.5))
            p95 = self.report.figure(f"pickup_{name}_p95_ms", pickup.latency_ms(0.95))
            self.report.goal(f"idle pickup ms p95, {name}", p95, bound="<=", goal=goal_ms)

    async def drained(self) -> None:
        """A keyless backlog, one route, a handler that does nothing; and what an event costs."""
        self.progress(f"{self.plan.items:,} events, no-op handler")
        url = await self._database()
        conn = await asyncpg.connect(url)
        before = await conn.fetchval("select pg_current_wal_lsn()")
        await publish(conn, self.plan.items)
        self.report.figure("drain_per_s", self.plan.items / await timed(_drain(url)))
        left = await conn.fetchval("select count(*) from public.outbox")
        assert not left, f"{left} events were left over: no rate can be told"
        wal = await conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", before)
        each = self.report.figure("wal_bytes_per_event", float(wal) / self.plan.items)
        self.report.goal("WAL KiB per event", each / 1024, bound="<=", goal=1.8)
        await publish(conn, 2 * ROWS)
        await _round_trips(conn)  # the driver asks once for the types it has not seen
        trips = self.report.figure(f"round_trips_for_{ROWS}", await _round_trips(conn))
        self.report.goal(f"round trips for {ROWS} rows", trips, bound="<=", goal=2)
        await conn.close()

    async def against_peers(self) -> None:
        """The same kind of backlog in other queues: each its best settings, one process."""
        rates: dict[str, float] = {}
        for name in self.plan.peers:
            peer = PEERS[name]
            self.progress(f"{name}: {peer.jobs:,} jobs")
            await self.admin.execute(f"create database peer_{name}")
            url = self.cluster.url(f"peer_{name}")
            try:
                rates[name] = await drain_rate(peer, url, PAYLOAD)
            except NotReached as error:
                self.report.note(f"{name}_per_s", str(error))
                continue
            self.report.figure(f"{name}_per_s", rates[name])
        if not rates:
            self.report.note("drain_to_fastest_peer", "no peer was measured")
            return
        ratio = self.report.figures["drain_per_s"] / max(rates.values())
        self.report.figure("drain_to_fastest_peer", ratio)
        self.report.goal("drain / fastest peer", ratio, bound=">=", goal=3.0)

    async def published(self) -> None:
        """Events per second of producers: one in a transaction, a thousand, or a large batch."""
        url = await self._database()
        for name, producers, size in (
            ("publish_single_per_s", 1, 1),
            (f"publish_single_{PRODUCERS}_producers_per_s", PRODUCERS, 1),
            ("publish_many_per_s", 1, CHUNK),
        ):
            self.progress(f"{name}: {self.plan.publish_s:g} s")
            until = monotonic() + self.plan.publish_s
            made = await asyncio.gather(*(_produce(url, size, until) for _ in range(producers)))
            self.report.figure(name, sum(events / seconds for events, seconds in made))
        self.progress(f"{self.plan.batch:,} in a transaction, also by COPY, in turns")
        conn = await asyncpg.connect(url)
        many, copy = await copying.rates(conn, self.plan.batch, 4 * self.plan.publish_s)
        await conn.close()
        self.report.figure("publish_batch_per_s", many)
        self.report.figure("publish_copy_per_s", copy)

    async def keyed(self) -> None:
        """A large backlog of which one key holds a third: the rate, and whether order is kept."""
        url = await self._database()
        conn = await asyncpg.connect(url)
        self.progress(f"publishing {self.plan.keyed:,} events with ordering keys")
        seen = keyed.Seen()
        took_s = await timed(keyed.fill(conn, range(self.plan.keyed)))
        self.report.figure("keyed_publish_per_s", self.plan.keyed / took_s)
        await conn.execute("vacuum (analyze) public.outbox")
        self.progress(f"draining them: {self.plan.keyed_s:g} s")
        rate = await _worked(keyed.application(url, seen), self.plan.keyed_s)
        self.report.figure("keyed_backlog", self.plan.keyed)
        self.report.figure("keyed_per_s", rate)
        self.report.goal("keyed events/s", rate, bound=">=", goal=15_000)
        broken = await seen.out_of_order(conn) + await self._late()
        self.report.figure("keyed_out_of_order", broken)
        self.report.goal("keyed events out of order", broken, bound="<=", goal=0)
        await conn.close()

    async def _late(self) -> int:
        """Events out of order where producers of the same keys commit late.

        The backlog is small: behind a large one their events would hardly come up.
        """
        self.progress(f"with producers that commit late: {self.plan.keyed_s / 3:g} s")
        url = await self._database()
        conn = await asyncpg.connect(url)
        seen = keyed.Seen()
        async with keyed.late_producers(url):
            await keyed.fill(conn, range(keyed.FILL))
            await _worked(keyed.application(url, seen), self.plan.keyed_s / 3)
        late = await conn.fetchval(keyed.LATE_SEEN)
        assert late, "the producers that commit late must be part of it"
        self.report.figure("keyed_late_events", late)
        broken = await seen.out_of_order(conn)
        await conn.close()
        return broken

    async def held(self) -> None:
        """The rates with a snapshot held open, against the same without, fed while drained."""
        for name, feeding, application in (
            ("keyless", feed, noop_app),
            ("keyed", keyed.feed, lambda url: keyed.application(url, keyed.Seen())),
        ):
            url = await self._database()
            self.progress(f"{name}, fed while drained: {self.plan.healthy_s:g} s")
            healthy = await _fed(feeding(url), application(url), self.plan.healthy_s)
            self.progress(f"{name}, with a snapshot held open: {self.plan.pinned_s:g} s")
            async with held_snapshot(url):
                # The last quarter counts: what a forgotten transaction costs grows with time.
                early = await _fed(feeding(url), application(url), self.plan.pinned_s * 3 / 4)
                late = await _fed(feeding(url), application(url), self.plan.pinned_s / 4)
            self.report.figure(f"{name}_fed_per_s", healthy)
            self.report.figure(f"{name}_held_early_per_s", early)
            self.report.figure(f"{name}_held_late_per_s", late)
            ratio = self.report.figure(f"{name}_held_to_healthy", late / healthy)
            self.report.goal(f"{name} held / healthy", ratio, bound=">=", goal=0.8)

    async def _database(self) -> str:
        name = f"bench_{next(self.numbers)}"
        await self.admin.execute(f"create database {name} template {MIGRATED}")
        return self.cluster.url(name)


class _Pickup:
    """An idle worker, and how long it takes to notice an event."""

    def __init__(self, url: str, *, listen: bool) -> None:
        self._url = url
        self._listen = listen
        self._called = asyncio.Event()
        self._called_at = 0.0
        self._latencies_s: list[float] = []
        self.app = Penstock(
            url, settings=with_values(Settings(), listen="auto" if listen else "off")
        )
        self._topic = self.app.outbox.topic(TOPIC, dict[str, object])
        self._topic.on()(self._handle)

    async def _handle(self, event: Event[dict[str, object]]) -> None:
        del event
        self._called_at = monotonic()
        self._called.set()

    async def start(self) -> None:
        """Let it work, and see one event through."""
        self._conn = await asyncpg.connect(self._url)
        await self._conn.execute(
            "update penstock.queue_config set notify = $1 where queue = 'outbox'", self._listen
        )
        self._work = asyncio.create_task(self.app.work(only=["outbox"]))
        await self.sample()
        self._latencies_s.clear()

    async def sample(self) -> None:
        """Publish one event and wait for it."""
        self._called.clear()
        await self._topic.publish(self._conn, {"order_id": 42}, autocommit_ok=True)
        committed = monotonic()
        await self._called.wait()
        # Called before the publisher's own answer was read counts as no wait at all.
        self._latencies_s.append(max(0.0, self._called_at - committed))

    async def stop(self) -> None:
        """Let it drain."""
        self.app.stop()
        await self._work
        await self._conn.close()

    def latency_ms(self, share: float) -> float:
        """What this share of all events did not exceed."""
        return share_of(self._latencies_s, share) * 1000


async def _drain(url: str) -> None:
    async with noop_app(url) as ps:
        await ps.work(until_idle=True)


async def _round_trips(conn: Connection) -> int:
    """Statements that it takes to claim and finish so many events."""
    queries: list[str] = []
    queue = OutboxQueue([TOPIC])
    with conn.query_logger(lambda query: queries.append(query.query)):
        items = await queue.claim(conn, limit=ROWS, owner=uuid4())
        refused = await queue.finish(conn, [Outcome(item, DONE) for item in items])
    await asyncio.sleep(0)  # the logger is called with the loop's next turn
    assert len(items) == ROWS, f"{len(items)} events were claimed"
    assert not refused, "nobody else works here"
    return len(queries)


async def _produce(url: str, size: int, until: float) -> tuple[int, float]:
    """Publish in a loop, so many per transaction; returns events and seconds."""
    topic = Penstock(url).outbox.topic(TOPIC, dict[str, object])
    payload: dict[str, object] = msgspec.json.decode(PAYLOAD)
    conn = await asyncpg.connect(url)
    made = 0
    started = monotonic()
    while monotonic() < until:
        async with conn.transaction():
            if size == 1:
                await topic.publish(conn, payload)
            else:
                await topic.publish_many(conn, repeat(payload, size))
        made += size
    seconds = monotonic() - started
    await conn.close()
    return made, seconds


async def _worked(application: Penstock, seconds: float) -> float:
    """Events finished per second."""
    async with application as ps:
        started = monotonic()
        report = await ps.work(deadline_s=seconds)
        return report.finished / (monotonic() - started)


async def _fed(feeding: Coroutine[Any, Any, None], application: Penstock, seconds: float) -> float:
    """Events finished per second while a producer keeps the queue from running dry."""
    task = asyncio.create_task(feeding)
    try:
        return await _worked(application, seconds)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
