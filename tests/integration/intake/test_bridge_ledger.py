"""Reservations become tickets: the bridge over two databases."""

import asyncio
import json
from uuid import UUID, uuid4

from tests.integration.intake.conftest import MakeBridge
from tests.support.bridge import POOL, Sale
from tests.support.waiting import until

from penstock.intake.bridge import Bridge
from penstock.kernel.database import Database
from penstock.kernel.events import Events, Observation, ReservationConfirmed
from penstock.kernel.limits import Limits
from penstock.kernel.worker import Worker


async def test_an_empty_queue_is_idle(bridge: Bridge) -> None:
    assert (await bridge.run_once()).document() == {"status": "idle"}


async def test_every_reservation_becomes_a_ticket_and_its_slot_is_consumed(
    bridge: Bridge, sale: Sale, seen: list[Observation]
) -> None:
    await sale.open(50)
    await sale.sell(*(f"u{n}" for n in range(40)))
    report = await bridge.run_once()
    assert report.document() == {"status": "ok", "processed": 40, "dlq": 0, "total": 40}
    assert sorted((await sale.tickets()).values()) == sorted(f"u{n}" for n in range(40))
    assert await sale.engine.counts() == (10, 0, 40)
    assert await sale.engine.depth() == 0
    await sale.prove()
    lines = [line for line in seen if isinstance(line, ReservationConfirmed)]
    assert len({line.msg_id for line in lines}) == 40
    assert {line.pool_id for line in lines} == {POOL}
    assert (await bridge.run_once()).status == "idle"


async def test_the_same_message_twice_makes_one_ticket(bridge: Bridge, sale: Sale) -> None:
    await sale.open(1)
    await sale.sell("alice")
    text = await sale.engine.conn.fetchval("select message::text from pgmq.q_intake_queue")
    await sale.engine.conn.fetchval("select intake_queue_send($1::jsonb)", text)
    report = await bridge.run_once()
    assert (report.processed, report.dlq, report.total) == (2, 0, 2)
    assert list((await sale.tickets()).values()) == ["alice"]
    assert await sale.engine.depth() == 0
    await sale.prove()


async def test_a_message_of_the_seeds_form_without_a_reservation_id_is_confirmed(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.open(1)
    resource = await sale.engine.buy("alice")
    await sale.engine.conn.execute(
        "update pgmq.q_intake_queue set message = message - 'reservation_id'"
    )
    assert (await bridge.run_once()).processed == 1
    assert await sale.tickets() == {str(resource): "alice"}
    assert await sale.engine.counts() == (0, 0, 1)


async def test_a_message_out_of_attempts_that_the_ledger_knows_is_completed_not_buried(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.open(1, max_retries=3)
    await sale.sell("alice")
    conn = sale.engine.conn
    text = await conn.fetchval("select message::text from pgmq.q_intake_queue")
    await sale.ledger.execute("select finalize_transaction($1::jsonb)", text)
    await conn.execute("update pgmq.q_intake_queue set read_ct = 9")
    report = await bridge.run_once()
    assert (report.processed, report.dlq) == (1, 0)
    assert await sale.engine.counts() == (0, 0, 1)
    await sale.prove()


async def test_a_message_out_of_attempts_that_nobody_confirmed_is_buried_and_holds_its_slot(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.open(1, max_retries=3)
    await sale.sell("alice")
    await sale.engine.conn.execute("update pgmq.q_intake_queue set read_ct = 3")
    report = await bridge.run_once()
    assert report.document() == {"status": "ok", "processed": 0, "dlq": 1, "total": 1}
    assert [code for _, code in await sale.dead()] == ["MAX_RETRIES"]
    assert await sale.engine.counts() == (0, 1, 0)
    await sale.prove()


async def test_a_resource_that_the_ledger_holds_for_another_is_corrected_from_it(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.open(1)
    resource = await sale.engine.buy("bob")
    await sale.ledger.execute(
        "select finalize_transaction($1::jsonb)",
        json.dumps(
            {
                "resource_id": str(resource),
                "pool_id": POOL,
                "user_id": "alice",
                "reservation_id": str(uuid4()),
            }
        ),
    )
    report = await bridge.run_once()
    assert (report.processed, report.dlq) == (0, 1)
    assert [code for _, code in await sale.dead()] == ["OWNERSHIP_CONFLICT"]
    slot = await sale.engine.slot(resource)
    assert (slot["locked_by"], slot["status"]) == ("alice", "CONSUMED")
    assert await sale.tickets() == {str(resource): "alice"}


async def test_a_reservation_cancelled_in_the_ledger_frees_its_place_under_a_new_id(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.open(1)
    (reservation,) = await sale.sell("alice")
    resource: UUID = await sale.engine.conn.fetchval("select id from inventory_slots")
    await sale.ledger.execute("select cancel_transaction($1)", reservation)
    report = await bridge.run_once()
    assert (report.processed, report.dlq) == (1, 0)
    assert await sale.tickets() == {}
    assert await sale.engine.counts() == (1, 0, 0)
    assert await sale.engine.conn.fetchval("select id from inventory_slots") != resource
    assert await sale.engine.depth() == 0
    await sale.prove()


async def test_a_message_without_a_config_row_is_retried_and_then_buried(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.open(1)
    await sale.sell("alice")
    await sale.engine.conn.execute("delete from engine_config")
    report = await bridge.run_once()
    assert (report.processed, report.dlq, report.total) == (0, 0, 1)
    await sale.engine.conn.execute("update pgmq.q_intake_queue set read_ct = 10")
    await sale.make_due()
    assert (await bridge.run_once()).dlq == 1
    assert [code for _, code in await sale.dead()] == ["NO_CONFIG"]
    await sale.prove()


async def test_a_commit_function_that_is_not_listed_is_never_called(
    bridge: Bridge, sale: Sale
) -> None:
    await sale.ledger.execute(
        "create table called(); create function evil(jsonb) returns void language sql"
        " as 'insert into called default values'"
    )
    await sale.open(1, commit_rpc_name="evil")
    await sale.sell("alice")
    report = await bridge.run_once()
    assert (report.processed, report.dlq, report.total) == (0, 0, 1)
    assert await sale.ledger.fetchval("select count(*) from called") == 0
    headers = await sale.engine.conn.fetchval("select headers::text from pgmq.q_intake_queue")
    assert json.loads(headers)["error_code"] == "PN307"


async def test_garbage_in_the_queue_is_buried_and_harms_nobody(bridge: Bridge, sale: Sale) -> None:
    await sale.open(2)
    await sale.sell("alice", "bob")
    for text in (
        "{}",
        '{"resource_id": "x"}',
        '{"pool_id": 7, "resource_id": null}',
        '"text"',
        "[]",
    ):
        await sale.engine.conn.fetchval("select pgmq.send('intake_queue', $1::jsonb)", text)
    report = await bridge.run_once()
    assert (report.processed, report.dlq) == (2, 5)
    assert {code for _, code in await sale.dead()} == {"INVALID_MESSAGE"}
    assert sorted((await sale.tickets()).values()) == ["alice", "bob"]


async def test_without_a_ledger_messages_stay_and_use_up_no_attempts(
    make_bridge: MakeBridge, engine: Database, sale: Sale, bridge: Bridge
) -> None:
    await sale.open(3, max_retries=1)
    await sale.sell("a", "b", "c")
    lost = make_bridge(engine=engine, other_ledger="postgres://nobody@127.0.0.1:1/none")
    for _ in range(4):
        report = await lost.run_once()
        assert (report.processed, report.dlq) == (0, 0)
        await sale.make_due()
    assert await sale.engine.depth() == 3
    assert await sale.engine.counts() == (0, 3, 0)
    await sale.make_due()
    assert (await bridge.run_once()).processed == 3
    await sale.prove()


async def test_two_workers_confirm_each_message_once(
    make_bridge: MakeBridge, engine: Database, sale: Sale
) -> None:
    await sale.open(2000)
    await sale.sell(*(f"u{n}" for n in range(2000)))
    workers = [
        Worker(
            engine,
            [make_bridge(engine=engine).assignment()],
            events=Events(),
            limits=Limits(batch=100),
        )
        for _ in range(2)
    ]
    runs = [asyncio.create_task(worker.run()) for worker in workers]

    async def drained() -> bool:
        return await sale.engine.depth() == 0

    await until(drained, "the queue is empty", within_s=30)
    for worker in workers:
        worker.stop()
    reports = await asyncio.gather(*runs)
    assert sum(report.finished for report in reports) == 2000
    assert await sale.engine.counts() == (0, 0, 2000)
    assert await sale.ledger.fetchval("select count(*) from confirmed_tickets") == 2000
    await sale.prove()
