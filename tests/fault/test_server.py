"""The server: a backend killed, all of it killed, COMMIT cut, an old snapshot held."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.database import make_template, server_binaries
from tests.support.history import assert_history
from tests.support.outbox import SqlOutbox
from tests.support.proxy import Proxy
from tests.support.waiting import until, until_true
from tests.support.workers import Fleet

from penstock.postgres import Cluster, throwaway_cluster

pytestmark = pytest.mark.fault

RECONNECT_WITHIN_S = 10.0
CLIENT_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError)
PUBLISH = "select app.outbox_publish($1, $2, $3::jsonb)"


class Producer:
    """Publishes without end, reconnects when cut, and keeps what it knows to be committed.

    A commit whose answer was lost may have happened: those ids are settled by asking afterwards.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.committed: set[UUID] = set()
        self.unknown: set[UUID] = set()

    async def run(self) -> None:
        """Publish one event every few milliseconds until cancelled."""
        while True:
            with suppress(OSError, asyncpg.PostgresError, *CLIENT_ERRORS):
                await self._connected()
            await asyncio.sleep(0.05)

    async def _connected(self) -> None:
        conn = await asyncpg.connect(self._url, timeout=5)
        try:
            while True:
                await self._publish(conn)
                await asyncio.sleep(0.005)
        finally:
            conn.terminate()

    async def _publish(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        event = uuid4()
        self.unknown.add(event)
        await conn.fetchval(PUBLISH, event, "plain", "{}")
        self.unknown.discard(event)
        self.committed.add(event)

    async def settled(self, conn: "asyncpg.Connection[asyncpg.Record]") -> set[UUID]:
        """All that exists: what was answered, and of the unknown what is there."""
        rows = await conn.fetch(
            "select id from app.outbox_all where id = any ($1)", list(self.unknown)
        )
        return self.committed | {row["id"] for row in rows}


@pytest.fixture
def own_server() -> Iterator[Cluster]:
    """A server of the test's own: others must not feel it die.

    Commits reach the operating system before they are answered, which is all that a killed process
    needs; nobody pulls the plug of the machine, so nothing waits for the disk.
    """
    settings = {
        "synchronous_commit": "on",
        "autovacuum": "off",
        "log_min_messages": "panic",
        "max_connections": "50",
    }
    with throwaway_cluster(binaries=server_binaries(), settings=settings) as cluster:
        make_template(cluster, "crash")
        cluster.run("psql", "-qc", "alter database crash is_template false allow_connections true")
        yield cluster


@asynccontextmanager
async def _producing(url: str) -> AsyncIterator[Producer]:
    producer = Producer(url)
    task = asyncio.create_task(producer.run())
    try:
        yield producer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _accepts(url: str) -> bool:
    try:
        conn = await asyncpg.connect(url, timeout=5)
    except (OSError, asyncpg.PostgresError):
        return False
    conn.terminate()
    return True


async def _moves_on(fleet: Fleet, what: str) -> float:
    """Wait for calls of after now; returns how long it took."""
    before, started = len(fleet.downstream.calls("done")), monotonic()
    await until_true(
        lambda: len(fleet.downstream.calls("done")) > before + 20,
        f"deliveries after {what}",
        within_s=RECONNECT_WITHIN_S,
    )
    return monotonic() - started


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_workers_come_back_by_themselves_when_the_server_dies(
    own_server: Cluster, tmp_path: Path
) -> None:
    url = own_server.url("crash")
    conn = await asyncpg.connect(url)
    await SqlOutbox(conn).policy(lease_s=1, backoff_base_s=0.1, backoff_cap_s=0.3)
    async with Fleet(url, tmp_path) as fleet, _producing(url) as producer:
        workers = [fleet.start(), fleet.start()]
        for worker in workers:
            await worker.working()
        await _moves_on(fleet, "the start")
        victim = await conn.fetchval(
            "select pid from pg_stat_activity where application_name = 'penstock'"
            " order by backend_start limit 1"
        )
        os.kill(victim, signal.SIGKILL)  # the server restarts all its backends
        await until(lambda: _accepts(url), "the server has recovered", within_s=30)
        await _moves_on(fleet, "a backend was killed")
        assert own_server.kill() is not None
        await asyncio.to_thread(own_server.start)
        await _moves_on(fleet, "the server was killed and started again")
        for worker in workers:
            assert worker.process.poll() is None, worker.words()
        conn.terminate()
        conn = await asyncpg.connect(url)
    async with Fleet(url, tmp_path) as again:
        ids = list(await producer.settled(conn))
        worker = await again.start().working()
        await until(lambda: _empty(conn), "everything is delivered", within_s=20)
        await worker.drained()
        await assert_history(conn, ids, downstream=fleet.downstream)
    assert len(ids) > 60
    await conn.close()


async def _empty(conn: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return not await conn.fetchval("select exists (select from public.outbox)")


@pytest.mark.parametrize("reached", [True, False], ids=["commit-reached", "commit-lost"])
async def test_an_effect_is_there_once_when_the_connection_is_cut_at_commit(
    database_url: str, fleet: Fleet, outbox: SqlOutbox, reached: bool
) -> None:
    async with Proxy(database_url) as proxy:
        worker = await fleet.start(url=proxy.url).working()
        if reached:
            proxy.cut_after_commit()
        else:
            proxy.cut_before_commit()
        ids = [await outbox.conn.fetchval(PUBLISH, None, "tx", "{}") for _ in range(3)]
        await until(lambda: _empty(outbox.conn), "all are delivered")
        assert proxy.swallowed == 1
        report = await worker.drained()
        assert report["stale"] == 0
    effects = await outbox.conn.fetch("select event_id from public.effects")
    assert sorted(row["event_id"] for row in effects) == sorted(ids)
    await assert_history(outbox.conn, ids)


async def test_a_dead_network_is_survived(
    database_url: str, fleet: Fleet, outbox: SqlOutbox, tmp_path: Path
) -> None:
    """All links are cut and new ones refused for longer than a lease, while a handler runs."""
    gate = tmp_path / "gate"
    async with Proxy(database_url) as proxy:
        worker = await fleet.start(url=proxy.url).working()
        payload = json.dumps({"do": "gate", "gate": str(gate)})
        ids = [await outbox.conn.fetchval(PUBLISH, None, "plain", payload)]
        await until_true(lambda: fleet.downstream.calls("started"), "it runs")
        proxy.refusing = True
        proxy.cut()
        await until(lambda: _lease_over(outbox.conn), "the lease has ended")
        gate.touch()
        await until_true(lambda: fleet.downstream.calls("done"), "the effect happened")
        ids.append(await outbox.conn.fetchval(PUBLISH, None, "plain", "{}"))
        proxy.refusing = False
        await until(lambda: _empty(outbox.conn), "both are delivered", within_s=10)
        await worker.drained()
    await assert_history(outbox.conn, ids, downstream=fleet.downstream)


async def _lease_over(conn: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return bool(await conn.fetchval("select expired = 1 from app.outbox_stats"))


async def test_a_forgotten_snapshot_stalls_nothing(
    database_url: str, fleet: Fleet, outbox: SqlOutbox
) -> None:
    """Held open from before the first event: dead rows pile up, and deliveries go on."""
    forgotten = await asyncpg.connect(database_url)
    await forgotten.execute("begin isolation level repeatable read")
    await forgotten.fetchval("select count(*) from public.outbox")
    worker = await fleet.start().working()
    ids: list[UUID] = []
    for _ in range(10):
        rows = await outbox.conn.fetch(
            "insert into public.outbox (topic, payload)"
            " select 'plain', '{}' from generate_series(1, 100) returning id"
        )
        ids += [row["id"] for row in rows]
        await until(lambda: _empty(outbox.conn), "this hundred is delivered", within_s=10)
    await worker.drained()
    assert await forgotten.fetchval("select count(*) from public.outbox_archive") == 0
    forgotten.terminate()
    await assert_history(outbox.conn, ids, downstream=fleet.downstream)


async def test_a_table_locked_longer_than_the_lock_timeout_delays_and_loses_nothing(
    database_url: str, fleet: Fleet, outbox: SqlOutbox
) -> None:
    """The finish cannot be written: it is tried again, the lease is kept, nobody else takes it."""
    locker = await asyncpg.connect(database_url)
    worker = await fleet.start(penstock_statement_timeout_s=1).working()
    await locker.execute("begin; lock table public.outbox_archive in access exclusive mode")
    event = await outbox.conn.fetchval(PUBLISH, None, "plain", "{}")
    await until_true(lambda: worker.observed("disconnected"), "a finish timed out", within_s=15)
    await locker.execute("rollback")
    await locker.close()
    await until(lambda: _empty(outbox.conn), "it is delivered", within_s=10)
    await worker.drained()
    assert len(fleet.downstream.calls("started")) == 1
    await assert_history(outbox.conn, [event], downstream=fleet.downstream)
