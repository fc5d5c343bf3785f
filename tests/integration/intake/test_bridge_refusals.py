"""A receiver's no frees a place only where no call before it may have sold it."""

import asyncio

import pytest
from tests.integration.intake.conftest import MakeBridge
from tests.support.bridge import Receiver, Sale
from tests.support.waiting import until_true

from penstock.intake.bridge import Bridge
from penstock.kernel.database import Database
from penstock.kernel.events import Events
from penstock.kernel.limits import Limits
from penstock.kernel.settings import Settings, with_values
from penstock.kernel.worker import Worker


@pytest.fixture
def settings() -> Settings:
    return with_values(Settings(), http_allow_private=("127.0.0.0/8",), http_timeout_s=5.0)


@pytest.fixture
def bridge(make_bridge: MakeBridge, engine: Database) -> Bridge:
    """No ledger at all: pools that commit by webhook need none."""
    return make_bridge(engine=engine, ledger=False)


async def refused_at_last(bridge: Bridge, sale: Sale) -> None:
    """The last answer is a no; the slot stays held and a person decides."""
    assert (await bridge.run_once()).dlq == 1
    assert [code for _, code in await sale.dead()] == ["HTTP_422"]
    assert await sale.engine.counts() == (0, 1, 0)


@pytest.mark.parametrize("before", [[504], [500, 503], [302], [429]])
async def test_a_no_after_another_answer_is_left_to_a_person(
    bridge: Bridge, sale: Sale, receiver: Receiver, before: list[int]
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.answer_with("/commit", [*before, 422])
    for _ in before:
        assert (await bridge.run_once()).dlq == 0
        await sale.make_due()
    await refused_at_last(bridge, sale)


async def test_a_lost_answer_is_remembered_over_later_ones(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.lose_answers = 1
    receiver.answer_with("/commit", [200, 503, 422])
    for _ in range(2):
        assert (await bridge.run_once()).dlq == 0
        await sale.make_due()
    await refused_at_last(bridge, sale)
    assert len(receiver.orders) == 1


async def test_a_replay_does_not_forget_the_calls_before_it(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"), max_retries=1)
    await sale.sell("alice")
    receiver.answer_with("/commit", [504, 422])
    await bridge.run_once()
    await sale.make_due()
    assert (await bridge.run_once()).dlq == 1
    ((dead, _),) = await sale.dead()
    assert await sale.engine.replay(dead) == ["replayed"]
    await refused_at_last(bridge, sale)


async def test_waiting_without_a_call_does_not_keep_a_refused_place(
    bridge: Bridge, sale: Sale, receiver: Receiver
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    (row,) = await sale.engine.claim()
    await sale.engine.conn.execute(
        "select intake_retry($1, $2, $3, $4)", [row["msg_id"]], [1], [0.0], ["LANE_FULL"]
    )
    await sale.make_due()
    receiver.answer_with("/commit", [422])
    assert (await bridge.run_once()).processed == 1
    assert await sale.engine.counts() == (1, 0, 0)


async def test_a_call_cut_off_by_the_end_of_a_worker_counts_and_is_remembered(
    bridge: Bridge, sale: Sale, receiver: Receiver, engine: Database
) -> None:
    await sale.open(1, commit_webhook_url=receiver.url("/commit"))
    await sale.sell("alice")
    receiver.delay_s = 4.0
    worker = Worker(engine, [bridge.assignment()], events=Events(), limits=Limits(drain_s=0.0))
    running = asyncio.create_task(worker.run())
    await until_true(lambda: receiver.calls, "the call has reached the receiver")
    worker.stop()
    await running
    row = await sale.engine.conn.fetchrow(
        "select read_ct, headers ->> 'error_code' as code from pgmq.q_intake_queue"
    )
    assert row is not None
    assert (row["read_ct"], row["code"]) == (1, "INTERRUPTED")
    receiver.delay_s = 0.0
    receiver.answer_with("/commit", [422])
    await sale.make_due()
    await refused_at_last(bridge, sale)
