"""Several sessions on one payment: whoever comes second finds the first one's fact."""

import asyncio
import os
import random
from datetime import timedelta

import asyncpg
import pytest
from tests.support.interleave import Session, Stage
from tests.support.payments import CLAIM, KEYED, SqlPayments

FINISH = "select state from finish_payment_attempts(array[$1::uuid], array[$2::uuid], array[$3])"
REAP = "select state from reap_payment_outbox()"
SENT = "select outbox_id from mark_payment_sent(array[$1::uuid], array[$2::uuid])"
LEASE_OVER = timedelta(seconds=61)
# `make storm` runs ten thousand.
ROUNDS = int(os.environ.get("TEST_ROUNDS", "150"))
NEXT = """select outbox_id, lease_token from finish_and_claim_payments(
    array[$1::uuid], array[$2::uuid], array[$3], array[0], null, null, null, null, null,
    array['p'], null)"""
PAID = """select outbox_id, lease_token from finish_paid_and_claim(
    array[$1::uuid], array[$2::uuid], null, null, null, null) where $3 <> ''"""


async def _claimed(session: Session) -> tuple[object, object]:
    (row,) = await session.run(CLAIM)
    return row["outbox_id"], row["lease_token"]


async def test_the_reaper_does_not_wait_for_a_finish_and_does_not_undo_it(
    database_url: str, payments: SqlPayments
) -> None:
    await payments.enqueue()
    async with Stage(database_url) as stage:
        worker, reaper = await stage.sessions("worker", "reaper")
        flight = await _claimed(worker)
        await payments.advance(LEASE_OVER)
        await worker.begin()
        assert await worker.value(FINISH, *flight, "DISPATCHED") == "DISPATCHED"
        assert await reaper.run(REAP) == []
        await worker.commit()
        assert await reaper.run(REAP) == []


async def test_a_finish_after_the_reaper_is_late(database_url: str, payments: SqlPayments) -> None:
    await payments.enqueue()
    async with Stage(database_url) as stage:
        worker, reaper = await stage.sessions("worker", "reaper")
        flight = await _claimed(worker)
        await payments.advance(LEASE_OVER)
        await reaper.begin()
        assert await reaper.value(REAP) == "ZOMBIE_REQUEUE"
        finish = worker.start(FINISH, *flight, "DISPATCHED")
        await stage.until_blocked(worker, finish)
        await reaper.commit()
        assert [row["state"] for row in await finish.done()] == ["LATE"]


async def test_a_quick_end_after_the_reaper_ends_nothing_and_takes_nothing(
    database_url: str, payments: SqlPayments
) -> None:
    await payments.enqueue()
    await payments.enqueue()
    async with Stage(database_url) as stage:
        worker, reaper = await stage.sessions("worker", "reaper")
        flight = await _claimed(worker)
        await payments.advance(LEASE_OVER)
        await reaper.begin()
        assert await reaper.value(REAP) == "ZOMBIE_REQUEUE"
        finish = worker.start(PAID, *flight, "DISPATCHED")
        await stage.until_blocked(worker, finish)
        await reaper.commit()
        assert await finish.done() == []
    assert await payments.violations() == []


async def test_the_last_look_and_the_reaper_exclude_each_other(
    database_url: str, payments: SqlPayments
) -> None:
    await payments.enqueue()
    async with Stage(database_url) as stage:
        worker, reaper = await stage.sessions("worker", "reaper")
        flight = await _claimed(worker)
        await payments.advance(LEASE_OVER)
        await reaper.begin()
        await reaper.run(REAP)
        look = worker.start(SENT, *flight)
        await stage.until_blocked(worker, look)
        await reaper.commit()
        assert await look.done() == [], "it must not send"
        flight = await _claimed(worker)
        await payments.advance(LEASE_OVER)
        await worker.begin()
        assert len(await worker.run(SENT, *flight)) == 1, "an ended lease that nobody took"
        assert await reaper.run(REAP) == []
        await worker.commit()
        assert await reaper.run(REAP) == [], "the lease now covers the call"


async def test_two_claims_never_hold_one_participant(
    database_url: str, payments: SqlPayments
) -> None:
    await payments.enqueue("p")
    await payments.enqueue("p")
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        assert len(await ann.run(CLAIM)) == 1
        assert await bob.run(CLAIM) == [], "the second number is not a head"
        await ann.commit()
        assert await bob.run(CLAIM) == []


async def test_a_claim_by_an_old_snapshot_is_repeated_not_doubled(
    database_url: str, payments: SqlPayments
) -> None:
    """A replay brings a lower number back and another claim takes it, all after our snapshot."""
    await payments.rail("ach", **KEYED)
    failed = await payments.fail("p")
    await payments.enqueue("p")
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin("repeatable read")
        await ann.run("select 1 from payment_outbox_pending")
        await bob.run("select replay_payment($1, 'bob', 'r')", failed)
        assert (await bob.run(CLAIM))[0]["outbox_id"] == failed
        with pytest.raises(asyncpg.SerializationError):
            await ann.run(CLAIM)
        await ann.rollback()
    assert await payments.state(failed) == "DISPATCHING"


async def test_a_cancel_and_a_claim_exclude_each_other(
    database_url: str, payments: SqlPayments
) -> None:
    payment = await payments.enqueue()
    cancel = "select cancel_payment($1, 'r')"
    async with Stage(database_url) as stage:
        worker, user = await stage.sessions("worker", "user")
        await worker.begin()
        assert len(await worker.run(CLAIM)) == 1
        assert not await user.value(cancel, payment)
        await worker.rollback()
        await user.begin()
        assert await user.value(cancel, payment)
        assert await worker.run(CLAIM) == []
        await user.commit()
    assert await payments.state(payment) == "CANCELLED"


@pytest.mark.timeout(60 + ROUNDS // 10)
async def test_reaper_finish_and_claim_on_one_row_give_each_dispatch_one_outcome(
    database_url: str, payments: SqlPayments
) -> None:
    """Rounds of everything at once on leases that have ended: M4, M5, M6 and M9 hold after each."""
    await payments.rail("ach", **KEYED)
    await payments.config(max_attempts=1000, lease_s=1)
    draw = random.Random(20)
    pool = await asyncpg.create_pool(database_url, min_size=4, max_size=4)

    async def quietly(query: str, *args: object) -> list[asyncpg.Record]:
        try:
            return await pool.fetch(query, *args)
        except asyncpg.SerializationError:
            return []

    async with pool:
        held: list[tuple[object, object]] = []
        for number in range(ROUNDS):
            if number % 2 == 0:
                await payments.enqueue("p")
            held = held[-4:]
            acts = [quietly(CLAIM), quietly(REAP), quietly(REAP)]
            acts += [
                quietly(
                    draw.choice([FINISH, NEXT, PAID]),
                    *flight,
                    draw.choice(["DISPATCHED", "RETRYABLE", "UNKNOWN"]),
                )
                for flight in held
            ]
            acts += [quietly(SENT, *flight) for flight in held[-1:]]
            draw.shuffle(acts)
            answers = await asyncio.gather(*acts)
            await payments.advance(timedelta(seconds=draw.choice([0, 2, 45])))
            held += [
                (row["outbox_id"], row["lease_token"])
                for rows in answers
                for row in rows
                if row.get("lease_token") is not None
            ]
            if number % max(30, ROUNDS // 20) == 0:
                assert await payments.violations() == []
    seen = await payments.conn.fetchrow(
        """select count(*) filter (where state = 'DISPATCHING') as dispatches,
                  count(*) filter (where state = 'ZOMBIE_REQUEUE') as zombies,
                  count(*) filter (where error_code = 'LATE_RESULT') as late
           from payment_outbox_attempts"""
    )
    assert seen is not None
    assert min(seen) > 3, "the rounds must meet what they are about"
