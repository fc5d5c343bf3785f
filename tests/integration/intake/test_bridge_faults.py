"""The bridge under faults: killed workers, a stopped ledger, short leases, a burst of claims."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest
from tests.integration.intake.conftest import MakeBridge
from tests.support.bridge import POOL, Receiver, Sale
from tests.support.database import server_binaries
from tests.support.waiting import until

from penstock.intake.answers import Reserved, SoldOut
from penstock.intake.desk import Desk
from penstock.intake.groups import Claim
from penstock.kernel.database import Database
from penstock.kernel.events import Events, LedgerBack, LedgerDown, Observation
from penstock.kernel.limits import Limits
from penstock.kernel.schema import LEDGER, migrate, select_products
from penstock.kernel.settings import Settings
from penstock.kernel.worker import Worker
from penstock.postgres import Cluster, throwaway_cluster

WORKER = """
import asyncio, os, sys
from penstock.application import Penstock
from penstock.kernel import failpoints
failpoints.arm_from_environment()
async def main():
    async with Penstock(sys.argv[1], ledger=sys.argv[2]) as ps:
        await ps.run_once("intake", deadline_s=20)
asyncio.run(main())
"""


def run_worker(database_url: str, ledger_url: str, failpoint: str = "") -> int:
    """One run of a real process; returns its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, database_url, ledger_url],
        env={**os.environ, "PENSTOCK_FAILPOINTS": failpoint},
        timeout=40,
        check=False,
    )
    return done.returncode


@pytest.mark.fault
async def test_killed_after_every_commit_the_ticket_is_one_and_nothing_is_buried(
    database_url: str, ledger_url: str, sale: Sale
) -> None:
    await sale.open(3, max_retries=2)
    await sale.sell("a", "b", "c")
    for _ in range(4):
        status = await asyncio.to_thread(
            run_worker, database_url, ledger_url, "after_commit_ledger=kill"
        )
        if status == 0:
            break  # out of attempts: the ledger was asked, and there was nothing left to commit
        assert status == -signal.SIGKILL
        assert await sale.ledger.fetchval("select count(*) from confirmed_tickets") == 3
        await sale.make_due()
    assert await asyncio.to_thread(run_worker, database_url, ledger_url) == 0
    assert await sale.dead() == []
    assert await sale.engine.counts() == (0, 0, 3)
    assert await sale.ledger.fetchval("select count(*) from confirmed_tickets") == 3
    await sale.prove()


@pytest.fixture
def ledger_cluster() -> Iterator[Cluster]:
    """A server that a test may stop and start again at the same address."""
    with throwaway_cluster(binaries=server_binaries()) as running:
        yield running


@pytest.mark.fault
@pytest.mark.slow
async def test_a_stopped_ledger_loses_nothing_and_drains_when_it_is_back(
    make_bridge: MakeBridge,
    engine: Database,
    sale: Sale,
    ledger_cluster: Cluster,
    seen: list[Observation],
) -> None:
    url = ledger_cluster.create_database("ledger")
    await migrate(url, products=select_products(LEDGER))
    bridge = make_bridge(engine=engine, other_ledger=url)
    await sale.open(300, max_retries=2)
    await sale.sell(*(f"u{n}" for n in range(100)))
    worker = Worker(engine, [bridge.assignment()], events=Events(), limits=Limits(batch=50))
    run = asyncio.create_task(worker.run())

    async def drained() -> bool:
        return await sale.engine.depth() == 0

    await until(drained, "the first hundred are confirmed", within_s=20)
    await asyncio.to_thread(ledger_cluster.stop)
    await sale.sell(*(f"v{n}" for n in range(100)))

    async def noticed() -> bool:
        return any(isinstance(line, LedgerDown) for line in seen)

    await until(noticed, "the outage is noticed", within_s=20)
    reads = await sale.engine.conn.fetchval("select max(read_ct) from pgmq.q_intake_queue")
    await asyncio.sleep(1.0)  # an outage lasts; attempts must not be burnt meanwhile
    again = await sale.engine.conn.fetchval("select max(read_ct) from pgmq.q_intake_queue")
    assert again - reads <= 2
    assert await sale.engine.depth() == 100
    assert await sale.engine.counts() == (100, 100, 100)
    await asyncio.to_thread(ledger_cluster.start)
    await until(drained, "the queue drains after the outage", within_s=30)
    worker.stop()
    await run
    assert any(isinstance(line, LedgerBack) for line in seen)
    assert await sale.dead() == []
    assert await sale.engine.counts() == (100, 0, 200)
    conn = await asyncpg.connect(url)
    assert await conn.fetchval("select count(*) from confirmed_tickets") == 200
    await conn.close()
    assert await sale.engine.violations() == []


async def test_with_a_lease_shorter_than_the_work_the_keeper_holds_it(
    make_bridge: MakeBridge, engine: Database, sale: Sale, receiver: Receiver, settings: Settings
) -> None:
    await sale.open(
        4, commit_webhook_url=receiver.url("/commit"), visibility_timeout_sec=1, max_retries=5
    )
    await sale.sell("a", "b", "c", "d")
    receiver.delay_s = 1.8
    assert settings.http_timeout_s > receiver.delay_s
    bridges = [make_bridge(engine=engine, ledger=False) for _ in range(2)]
    reports = await asyncio.gather(*(bridge.run_once(deadline_s=10) for bridge in bridges))
    assert sum(report.processed for report in reports) == 4
    assert set(receiver.keys("/commit").values()) == {1}
    assert await sale.engine.counts() == (0, 0, 4)


@pytest.mark.slow
async def test_ten_thousand_concurrent_claims_over_twenty_connections_are_counted_exactly(
    database_url: str, sale: Sale, settings: Settings
) -> None:
    await sale.open(3000)
    before = await sale.engine.conn.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    database = Database(database_url, size=20)
    await database.open()
    desks = [Desk(database, None, events=Events(), settings=settings) for _ in range(10)]
    claims = [
        desks[n % 10].reserve(POOL, Claim(f"user-{n}", request_id="r")) for n in range(10_000)
    ]
    answers = await asyncio.gather(*claims)
    counted = Counter(type(answer) for answer in answers)
    assert counted == {Reserved: 3000, SoldOut: 7000}
    resources = {answer.resource_id for answer in answers if isinstance(answer, Reserved)}
    assert len(resources) == 3000
    assert await sale.engine.counts() == (0, 3000, 0)
    assert await sale.engine.depth() == 3000
    assert before == await sale.engine.conn.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    await sale.prove()
    await database.close()
