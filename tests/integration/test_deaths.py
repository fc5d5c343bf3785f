"""Deaths that no handler caused are told as well: each one once, whoever reaped it."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.support.inbox import SqlInbox, arrival
from tests.support.outbox import Connection, Routed
from tests.support.payments import SqlPayments
from tests.support.pumping import Calls, TroubledQueue, pumping
from tests.support.rails import opened

from penstock.inbox.queue import InboxQueue
from penstock.kernel.database import Database
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.events import Events, ItemDied, Observation
from penstock.kernel.limits import Limits
from penstock.kernel.metrics import Metrics
from penstock.kernel.queue import Queue
from penstock.payments.queue import PaymentsQueue

TAKE = "select item_id from penstock.take_deaths($1)"


@pytest.fixture
async def outbox(conn: Connection) -> Routed:
    outbox = Routed(conn)
    await outbox.make_clock_settable()
    await outbox.policy(lease_s=30, max_attempts=1)
    return outbox


async def _told(url: str, queue: Queue) -> list[ItemDied]:
    """What a worker would tell at its next round."""
    database = Database(url, size=2)
    await database.open()
    try:
        async with database.connection() as conn:
            return list((await queue.tend(conn)).deaths)
    finally:
        await database.close()


async def _reap_in_a_claim(outbox: Routed, *, joint: bool = True) -> list[UUID]:
    """Two events whose only attempt is lost, reaped by the claim of a client of SQL."""
    ids = await outbox.publish(2)
    assert len(await outbox.claim(joint=joint)) == 2
    await outbox.advance(timedelta(seconds=31))
    await outbox.conn.execute("select setval('penstock.outbox_swept', 0)")
    assert await outbox.claim() == []
    assert [await outbox.state(event) for event in ids] == ["DEAD", "DEAD"]
    return ids


@pytest.mark.parametrize("joint", [True, False])
async def test_what_another_clients_claim_reaped_is_told_once(
    database_url: str, outbox: Routed, joint: bool
) -> None:
    ids = await _reap_in_a_claim(outbox, joint=joint)
    queue = TroubledQueue()
    told = await _told(database_url, queue)
    assert told == [ItemDied("outbox", "t", event, 1, "ZOMBIE_LIMIT") for event in ids]
    assert await _told(database_url, queue) == []


async def test_a_run_tells_of_what_its_own_claim_reaped(database_url: str, outbox: Routed) -> None:
    ids = await outbox.publish(3)
    await outbox.claim()
    await outbox.advance(timedelta(seconds=31))
    await outbox.conn.execute("select setval('penstock.outbox_swept', 0)")
    queue = TroubledQueue()
    queue.errors["tend"] = [DatabaseUnreachable("away")]  # so that only the claim reaps
    metrics = Metrics()
    async with pumping(database_url, Calls(), queue=queue, limits=Limits(until_idle=True)) as run:
        await run.task
    for seen in run.observed:
        metrics.subscriber(seen)
    assert [one.item_id for one in run.observed if isinstance(one, ItemDied)] == ids
    counted = (await metrics.render()).decode()
    assert 'penstock_deaths_total{queue="outbox"} 3.0' in counted


async def test_a_row_of_a_relay_table_that_no_route_takes_is_told(
    database_url: str, outbox: Routed
) -> None:
    await outbox.route("r", "payments.*", where="$.n > 100")
    row: UUID = await outbox.conn.fetchval(
        """insert into payments.outbox_transfers (payload) values ('{"n": 1}') returning id"""
    )
    await outbox.expand()
    (died,) = await _told(database_url, TroubledQueue())
    assert died == ItemDied("outbox", "payments.outbox_transfers", row, 0, "NO_ROUTE")


async def test_the_inbox_tells_of_the_reaped_and_of_those_dead_on_arrival(
    database_url: str, conn: Connection
) -> None:
    inbox = SqlInbox(conn)
    await inbox.make_clock_settable()
    await conn.execute("update penstock.queue_config set max_attempts = 1 where queue = 'inbox'")
    source = await inbox.source()
    (event,) = await inbox.send(source, "e1")
    await inbox.claim()
    await inbox.advance(timedelta(minutes=10))
    await conn.execute("select setval('penstock.inbox_swept', 0)")
    broken = arrival(source, "e2", "no json", payload=None)
    await inbox.receive(broken)
    told = {died.item_id: died for died in await _told(database_url, InboxQueue())}
    assert {event: died.code for event, died in told.items()} == {
        event: "ZOMBIE_LIMIT",
        broken.id: await conn.fetchval(
            "select error_code from webhook_events where event_id = 'e2'"
        ),
    }
    assert {died.topic for died in told.values()} == {"stripe/t"}
    assert await _told(database_url, InboxQueue()) == []


async def test_payments_tell_of_every_failed_one_and_of_no_other(
    database_url: str, conn: Connection
) -> None:
    sql = SqlPayments(conn)
    await sql.make_clock_shiftable()
    await sql.config(max_attempts=1)
    seen: list[Observation] = []
    async with opened(database_url) as shop:
        shop.ps.subscribe(seen.append)
        shop.use()
        shop.simulator.script = ["", "refused", "busy"]
        for name in ("a", "b", "c"):
            await shop.enqueue(name)
        await shop.work()
        zombie = await shop.enqueue("d")
        await sql.claim()
        await sql.advance(timedelta(minutes=5))
        await shop.run_job("payments_reap")
        await shop.work()
        assert await shop.state(zombie) == "FAILED"
    died = [one for one in seen if isinstance(one, ItemDied)]
    dead = await conn.fetch("select id, topic, error_code from penstock_payments.dead")
    assert sorted((one.item_id, one.topic, one.code) for one in died) == sorted(map(tuple, dead))
    assert len(died) == 3
    assert await _told(database_url, PaymentsQueue(["ach"], Events())) == []


async def test_two_workers_are_never_given_the_same_death(
    database_url: str, outbox: Routed
) -> None:
    await _reap_in_a_claim(outbox)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            assert len(await other.fetch(TAKE, "outbox")) == 2
            assert await outbox.conn.fetch(TAKE, "outbox") == []
        assert await outbox.conn.fetch(TAKE, "outbox") == []
    finally:
        await other.close()


async def test_deaths_are_for_workers_of_their_own_queue(outbox: Routed) -> None:
    ids = await _reap_in_a_claim(outbox)
    await outbox.conn.execute("set role penstock_payments_executor")
    assert await outbox.conn.fetch(TAKE, "outbox") == []
    await outbox.conn.execute("set role penstock_outbox_executor")
    assert [row["item_id"] for row in await outbox.conn.fetch(TAKE, "outbox")] == ids


async def test_where_nobody_asks_deaths_are_forgotten_after_a_day(outbox: Routed) -> None:
    await _reap_in_a_claim(outbox)
    await outbox.advance(timedelta(days=1, minutes=1))
    ids = await _reap_in_a_claim(outbox)
    assert [row["item_id"] for row in await outbox.conn.fetch(TAKE, "outbox")] == ids
