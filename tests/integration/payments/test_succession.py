"""A relayer finishes and claims in one commit, and nobody waits or is lost because of it."""

import asyncio
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.payments import SqlPayments
from tests.support.rails import DAY, opened
from tests.support.waiting import until_true

from penstock.kernel.events import AttemptsRecorded, Claimed, Events, Observation
from penstock.kernel.queue import Outcome
from penstock.kernel.verdict import DONE, Reject
from penstock.payments import queue as queue_module
from penstock.payments import store, succession
from penstock.payments.instruction import Instruction
from penstock.payments.queue import PaymentsQueue
from penstock.payments.rails import RailOutcome, Sent


class Watching:
    """A rail that pays at once and remembers for whom, in order."""

    def __init__(self) -> None:
        self.participants: list[str] = []

    async def dispatch(self, instruction: Instruction, key: UUID) -> RailOutcome:
        self.participants.append(instruction.participant_id)
        return Sent(str(key))


async def test_a_long_line_is_worked_off_with_hardly_a_claim_of_its_own(database_url: str) -> None:
    seen: list[Observation] = []
    async with opened(database_url) as shop:
        shop.ps.subscribe(seen.append)
        rail = Watching()
        shop.use(rail)
        for _ in range(60):
            await shop.enqueue("p1")
        finished = (await shop.work())["finished"]
        calls = await shop.conn.fetchval(
            "select count(*) from payment_outbox_attempts where state = 'DISPATCHING'"
        )
    assert finished == calls == len(rail.participants) == 60
    claims = [one.count for one in seen if isinstance(one, Claimed)]
    assert sum(claims) == 60, "each is told of as a claim"
    told = sum(
        one.count
        for one in seen
        if isinstance(one, AttemptsRecorded) and one.state == "DISPATCHING"
    )
    assert told == 60


async def test_who_is_served_does_not_keep_out_the_others(database_url: str) -> None:
    """One at a time, twelve participants with five payments each: they take turns."""
    async with opened(database_url, batch_size=1) as shop:
        rail = Watching()
        shop.use(rail, concurrency=1)
        for _ in range(5):
            for number in range(12):
                await shop.enqueue(f"p{number}")
        await shop.work()
    assert len(rail.participants) == 60
    assert len(set(rail.participants[:18])) == 12


async def test_the_next_is_taken_only_while_everybody_is_served(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await SqlPayments(conn).fill(15, 5)
    queue, owner = PaymentsQueue(["ach"], Events()), uuid4()
    some = await queue.claim(conn, limit=3, owner=owner)
    assert len(some) == 3
    outcomes = [Outcome(item, DONE) for item in some]
    assert await queue.finish_and_claim(conn, outcomes, owner=owner, skip=()) == ([], ())
    rest = [*await queue.claim(conn, limit=9, owner=owner)]
    rest += await queue.claim(conn, limit=9, owner=owner)
    assert len(rest) == 5
    outcomes = [Outcome(item, DONE) for item in rest]
    refused, taken = await queue.finish_and_claim(conn, outcomes, owner=owner, skip=())
    assert refused == []
    assert {item.ordering_key for item in taken} == {item.ordering_key for item in rest}
    assert not {item.id for item in taken} & {item.id for item in rest}


async def test_nobody_goes_round_for_nothing_while_each_is_followed_by_its_next(
    conn: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the time has come, or somebody has nothing more to follow."""
    sql = SqlPayments(conn)
    await sql.fill(9, 3)
    monkeypatch.setattr(queue_module, "ROUND_SHARE", 1e-9)
    monkeypatch.setattr(queue_module, "ROUND_WAIT_MAX_S", 3600.0)
    queue, owner = PaymentsQueue(["ach"], Events()), uuid4()
    items = await queue.claim(conn, limit=9, owner=owner)
    assert len(items) == 3
    await sql.enqueue("newcomer")
    for _ in range(2):
        assert await queue.claim(conn, limit=9, owner=owner) == ()
        outcomes = [Outcome(item, DONE) for item in items]
        _, items = await queue.finish_and_claim(conn, outcomes, owner=owner, skip=())
        assert len(items) == 3
    monkeypatch.setattr(queue_module, "ROUND_WAIT_MAX_S", 0.0)
    queue._look_again_later(0.0, idle=False)
    (newcomer,) = await queue.claim(conn, limit=9, owner=owner)
    assert newcomer.ordering_key == "newcomer"
    monkeypatch.setattr(queue_module, "ROUND_WAIT_MAX_S", 3600.0)
    queue._look_again_later(monotonic(), idle=False)
    await sql.enqueue("another")
    assert await queue.claim(conn, limit=9, owner=owner) == ()
    outcomes = [Outcome(item, DONE) for item in items]
    assert await queue.finish_and_claim(conn, outcomes, owner=owner, skip=()) == ([], [])
    assert len(await queue.claim(conn, limit=9, owner=owner)) == 1


async def test_what_was_not_paid_does_not_keep_the_others_from_going_on(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Of four that ended together one was refused by its rail, and one lease had been lost."""
    sql = SqlPayments(conn)
    await sql.fill(8, 4)
    told: list[Observation] = []
    events = Events()
    events.subscribe(told.append)
    queue, owner = PaymentsQueue(["ach"], events), uuid4()
    refused, lost, *paid = await queue.claim(conn, limit=9, owner=owner)
    await queue.release(conn, [lost])
    outcomes = [Outcome(item, DONE) for item in (lost, *paid)]
    outcomes.insert(1, Outcome(refused, Reject("NO")))
    late, taken = await queue.finish_and_claim(conn, outcomes, owner=owner, skip=())
    assert late == [lost]
    assert {item.ordering_key for item in taken} == {item.ordering_key for item in paid}
    assert [await sql.state(item.id) for item in (refused, *paid)] == ["FAILED"] + [
        "DISPATCHED"
    ] * 2
    counts = [(one.state, one.count) for one in told if isinstance(one, AttemptsRecorded)]
    assert counts == [("DISPATCHING", 4), ("FAILED", 1), ("DISPATCHED", 2), ("DISPATCHING", 2)]
    assert await sql.violations() == []


async def test_what_comes_with_a_finish_after_the_stop_is_given_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database_url) as shop:
        rail = Watching()
        shop.use(rail)
        for _ in range(10):
            await shop.enqueue("p1")
        finish_and_claim, mark_sent = succession.finish_paid_and_claim, store.mark_sent
        leave: list[int] = []

        async def stopping(*args: Any, **options: Any) -> Any:
            ended, claimed = await finish_and_claim(*args, **options)
            assert len(claimed) == 1
            shop.ps.stop()
            for _ in range(50):  # turns of the loop: the drain gets as far as it can
                await asyncio.sleep(0)
            return ended, claimed

        async def counting(*args: Any) -> Any:
            leave.append(1)
            return await mark_sent(*args)

        monkeypatch.setattr(succession, "finish_paid_and_claim", stopping)
        monkeypatch.setattr(store, "mark_sent", counting)
        async with asyncio.timeout(20):
            report = await shop.ps.work(only=["payments"])
        in_flight = await shop.conn.fetchval("select count(*) from payment_outbox_inflight")
        left = await shop.conn.fetchval("select count(*) from payment_outbox_pending")
        assert await shop.violations() == []
    assert len(leave) == len(rail.participants) == 1, "nothing was begun after the stop"
    assert (report.abandoned, report.released) == (0, 1)
    assert (in_flight, left) == (0, 9)


async def test_a_newcomer_is_served_while_others_follow_each_other(database_url: str) -> None:
    async with opened(database_url, listen="off") as shop:
        rail = Watching()
        shop.use(rail, key_window=DAY)
        for _ in range(300):
            await shop.enqueue("p1")
        work = asyncio.create_task(shop.ps.work(only=["payments"]))
        await until_true(lambda: rail.participants, "the line moves")
        await shop.enqueue("p2")
        await until_true(lambda: "p2" in rail.participants, "the newcomer is served", within_s=20)
        served_before = rail.participants.index("p2")
        shop.ps.stop()
        await work
        assert await shop.violations() == []
    assert served_before < 300, "not only when the line was worked off"
