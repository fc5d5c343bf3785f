"""Commit and validation by webhook, against a receiver that records every call."""

import base64
import hmac
import json
from hashlib import sha256
from uuid import UUID

import pytest
from tests.integration.intake.conftest import MakeBridge
from tests.support.bridge import POOL, Receiver, Sale

from penstock.intake.bridge import Bridge
from penstock.kernel.database import Database
from penstock.kernel.events import ItemDied, Observation, ReceiverRefusesUs, ReservationReleased
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values

KEY = b"k" * 24


@pytest.fixture
def settings() -> Settings:
    return with_values(
        Settings(),
        http_allow_private=("127.0.0.0/8",),
        http_timeout_s=1.0,
        http_signing_secret=Secret("whsec_" + base64.b64encode(KEY).decode()),
    )


@pytest.fixture
def bridge(make_bridge: MakeBridge, engine: Database) -> Bridge:
    """No ledger at all: pools that commit by webhook need none."""
    return make_bridge(engine=engine, ledger=False)


async def last_code(sale: Sale) -> object:
    text = await sale.engine.conn.fetchval("select headers::text from pgmq.q_intake_queue")
    return json.loads(text)["error_code"]


async def test_the_commit_is_posted_with_its_keys_and_a_signature(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(2, commit_webhook_url=receiver.url("/commit"))
    (reservation,) = await sale.sell("alice")
    resource: UUID = await sale.engine.conn.fetchval(
        "select id from inventory_slots where status = 'RESERVED'"
    )
    report = await bridge.run_once()
    assert report.document() == {"status": "ok", "processed": 1, "dlq": 0, "total": 1}
    (call,) = receiver.calls
    assert call.headers["content-type"] == "application/json"
    assert call.headers["x-idempotency-key"] == str(resource)
    assert call.headers["x-reservation-id"] == str(reservation)
    assert call.body == {
        "pool_id": POOL,
        "resource_id": str(resource),
        "user_id": "alice",
        "reservation_id": str(reservation),
        "state": "validated",
    }
    signed = f"{call.headers['webhook-id']}.{call.headers['webhook-timestamp']}.".encode()
    wanted = base64.b64encode(hmac.digest(KEY, signed + call.raw, sha256)).decode()
    assert call.headers["webhook-signature"] == f"v1,{wanted}"
    assert (await sale.engine.slot(resource))["status"] == "CONSUMED"
    assert await sale.engine.depth() == 0


async def test_a_lost_answer_is_repeated_with_the_same_keys_and_makes_one_order(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(5, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("a", "b", "c", "d", "e")
    receiver.lose_answers = 3
    assert (await bridge.run_once()).processed == 2
    assert await sale.engine.counts() == (0, 3, 2)
    await sale.make_due()
    assert (await bridge.run_once()).processed == 3
    assert len(receiver.orders) == 5
    reservations = {call.headers["x-reservation-id"] for call in receiver.calls}
    assert len(reservations) == 5
    assert sorted(receiver.keys("/commit").values()) == [1, 1, 2, 2, 2]
    assert await sale.engine.counts() == (0, 0, 5)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 302])
async def test_what_may_pass_is_retried_and_then_buried_with_its_slot_held(
    bridge: Bridge, sale: Sale, receiver: Receiver, status: int
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"), max_retries=2)
    await sale.sell("alice")
    receiver.answer_with("/commit", [status])
    for _ in range(2):
        report = await bridge.run_once()
        assert (report.processed, report.dlq) == (0, 0)
        await sale.make_due()
    assert (await bridge.run_once()).dlq == 1
    assert len(receiver.calls) == 2
    assert [code for _, code in await sale.dead()] == [f"HTTP_{status}"]
    assert await sale.engine.counts() == (0, 1, 0)


async def test_retry_after_is_honoured(bridge: Bridge, sale: Sale, receiver: Receiver) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.answer_with("/commit", [429])
    receiver.headers = {"retry-after": "120"}
    await bridge.run_once()
    wait_s = await sale.engine.conn.fetchval(
        "select extract(epoch from vt - clock_timestamp())::float8 from pgmq.q_intake_queue"
    )
    assert 100 < wait_s <= 120


@pytest.mark.parametrize("status", [400, 410, 422])
async def test_a_refusal_of_the_sale_frees_the_place_under_a_new_id(
    bridge: Bridge, sale: Sale, receiver: Receiver, status: int, seen: list[Observation]
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    before = await sale.engine.conn.fetchval("select id from inventory_slots")
    receiver.answer_with("/commit", [status])
    report = await bridge.run_once()
    assert (report.processed, report.dlq) == (1, 0)
    assert await sale.engine.counts() == (1, 0, 0)
    assert await sale.engine.conn.fetchval("select id from inventory_slots") != before
    assert await sale.engine.depth() == 0
    (line,) = [line for line in seen if isinstance(line, ReservationReleased)]
    assert not [line for line in seen if isinstance(line, ItemDied)]  # it ended, it did not die
    assert (line.pool_id, line.code, line.outcome) == (POOL, f"HTTP_{status}", "retired")
    assert await sale.engine.violations() == []


async def test_a_refusal_after_a_lost_answer_is_left_to_a_person(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.lose_answers = 1
    await bridge.run_once()
    receiver.answer_with("/commit", [422])
    await sale.make_due()
    assert (await bridge.run_once()).dlq == 1
    assert await sale.engine.counts() == (0, 1, 0)


async def test_a_wrong_address_is_left_to_a_person_and_holds_the_slot(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.answer_with("/commit", [404])
    assert (await bridge.run_once()).dlq == 1
    assert [code for _, code in await sale.dead()] == ["HTTP_404"]
    assert await sale.engine.counts() == (0, 1, 0)


async def test_a_refused_key_burns_no_messages_and_is_said_loudly(
    bridge: Bridge, sale: Sale, receiver: Receiver, seen: list[Observation]
) -> None:
    await sale.open(3, commit_webhook_url=receiver.url("/commit"), max_retries=1)
    await sale.sell("a", "b", "c")
    receiver.answer_with("/commit", [401])
    for _ in range(4):
        report = await bridge.run_once()
        assert (report.processed, report.dlq) == (0, 0)
        await sale.make_due()
    assert await last_code(sale) == "HTTP_401"
    assert any(isinstance(line, ReceiverRefusesUs) for line in seen)
    receiver.answer_with("/commit", [200])
    assert (await bridge.run_once()).processed == 3
    assert await sale.engine.counts() == (0, 0, 3)


async def test_409_for_a_known_key_means_done(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.answer_with("/commit", [409])
    assert (await bridge.run_once()).processed == 1
    assert await sale.engine.counts() == (0, 0, 1)


async def test_validation_is_asked_once_and_then_the_commit_follows(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(
        1,
        validation_webhook_url=receiver.url("/check"),
        commit_webhook_url=receiver.url("/commit"),
    )
    (reservation,) = await sale.sell("alice")
    receiver.answer_with("/commit", [503, 200])
    assert (await bridge.run_once()).processed == 0
    await sale.make_due()
    assert (await bridge.run_once()).processed == 1
    assert [call.path for call in receiver.calls] == ["/check", "/commit", "/commit"]
    assert receiver.calls[0].headers["x-idempotency-key"] == str(reservation)
    assert receiver.calls[0].body["state"] == "queued"
    assert await sale.engine.counts() == (0, 0, 1)


async def test_a_no_of_the_validation_frees_the_same_slot_at_once(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(
        1,
        validation_webhook_url=receiver.url("/check"),
        commit_webhook_url=receiver.url("/commit"),
    )
    resource = await sale.engine.buy("alice")
    receiver.answer_with("/check", [422])
    assert (await bridge.run_once()).processed == 1
    assert [call.path for call in receiver.calls] == ["/check"]
    slot = await sale.engine.slot(resource)
    assert (slot["status"], slot["locked_by"]) == ("AVAILABLE", None)


async def test_validation_may_come_before_a_commit_in_the_ledger(
    make_bridge: MakeBridge, engine: Database, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(2, validation_webhook_url=receiver.url("/check"))
    await sale.sell("alice", "bob")
    assert (await make_bridge(engine=engine).run_once()).processed == 2
    assert sorted((await sale.tickets()).values()) == ["alice", "bob"]
    assert len(receiver.calls) == 2
    await sale.prove()


async def test_an_address_that_is_not_public_is_never_called(
    make_bridge: MakeBridge, engine: Database, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=f"https://localhost:{receiver.port}/commit")
    await sale.sell("alice")
    report = await make_bridge(engine=engine, ledger=False).run_once()
    assert (report.processed, report.dlq, report.total) == (0, 0, 1)
    assert receiver.calls == []


async def test_a_slow_receiver_holds_up_no_other_pool_and_its_calls_are_bounded(
    make_bridge: MakeBridge, engine: Database, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(200, commit_webhook_url=receiver.url("/slow"))
    await sale.sell(*(f"u{n}" for n in range(200)))
    await sale.engine.stock(50, "quick")
    await sale.engine.configure("quick")
    await sale.engine.reserve(*(f"q{n}" for n in range(50)), pool="quick")
    receiver.delay_s = 5.0  # longer than the time limit of a call
    report = await make_bridge(engine=engine).run_once(deadline_s=4.0)
    assert report.processed == 50
    assert await sale.engine.counts("quick") == (0, 0, 50)
    assert await sale.engine.counts() == (0, 200, 0)
    assert receiver.most <= 64
