"""reap_payment_outbox: zombies count, the limit ends them, what may be paid is held."""

from datetime import timedelta

import pytest
from tests.support.payments import KEYED, SqlPayments

LEASE_OVER = timedelta(seconds=61)


async def test_a_live_lease_is_left_alone(payments: SqlPayments) -> None:
    await payments.enqueue()
    await payments.claim()
    await payments.advance(timedelta(seconds=59))
    assert await payments.reap() == []


async def test_a_zombie_comes_back_under_its_own_ids(payments: SqlPayments) -> None:
    payment = await payments.enqueue()
    await payments.claim()
    await payments.advance(LEASE_OVER)
    assert await payments.reap() == ["ZOMBIE_REQUEUE"]
    assert await payments.reap() == []
    assert await payments.attempts(payment) == [
        (1, "DISPATCHING", None),
        (2, "ZOMBIE_REQUEUE", "ZOMBIE"),
    ]
    (flight,) = await payments.claim()
    assert (flight.id, flight.sequence, flight.attempt_no) == (payment, 1, 3)


async def test_a_payment_is_healed_within_75_seconds(payments: SqlPayments) -> None:
    lease_s = await payments.conn.fetchval(
        "select lease_s from penstock.queue_config where queue = 'payments'"
    )
    every_s = await payments.conn.fetchval(
        "select every_s from penstock.schedule where job = 'payments_reap'"
    )
    assert lease_s + every_s <= 75


async def test_a_payload_that_kills_its_worker_ends_at_the_limit(payments: SqlPayments) -> None:
    await payments.config(max_attempts=3)
    payment = await payments.enqueue()
    ends = []
    for _ in range(3):
        assert len(await payments.claim()) == 1
        await payments.advance(LEASE_OVER)
        ends += await payments.reap()
    assert ends == ["ZOMBIE_REQUEUE", "ZOMBIE_REQUEUE", "FAILED"]
    assert (await payments.attempts(payment))[-1] == (6, "FAILED", "ZOMBIE_LIMIT")
    assert await payments.claim() == []


@pytest.mark.parametrize("sent", [False, True])
async def test_a_zombie_at_the_limit_says_whether_it_may_have_been_paid(
    payments: SqlPayments, *, sent: bool
) -> None:
    await payments.rail("ach", **KEYED)
    await payments.config(max_attempts=1)
    await payments.enqueue()
    flights = await payments.claim()
    if sent:
        await payments.send(flights)
    await payments.advance(LEASE_OVER)
    assert await payments.reap() == ["FAILED"]
    told = await payments.conn.fetchval("select error from penstock.dead_letters")
    assert ("may have been made" in told) == sent


@pytest.mark.parametrize(
    ("keyed", "sent", "expected"),
    [
        (False, False, "ZOMBIE_REQUEUE"),
        (False, True, "HELD"),
        (True, False, "ZOMBIE_REQUEUE"),
        (True, True, "ZOMBIE_REQUEUE"),
    ],
)
async def test_what_may_be_paid_comes_back_only_where_the_rail_knows_our_key(
    payments: SqlPayments, *, keyed: bool, sent: bool, expected: str
) -> None:
    if keyed:
        await payments.rail("ach", **KEYED)
    await payments.enqueue()
    flights = await payments.claim()
    if sent:
        await payments.send(flights)
    await payments.advance(LEASE_OVER)
    assert await payments.reap() == [expected]
    await payments.advance(timedelta(days=10))
    assert await payments.reap() == []


async def test_beyond_the_window_a_zombie_that_was_sent_is_held(payments: SqlPayments) -> None:
    await payments.rail("ach", **KEYED)
    await payments.enqueue()
    await payments.send(await payments.claim())
    await payments.advance(timedelta(hours=24))
    assert await payments.reap() == ["HELD"]


async def test_the_reaper_does_not_read_history(payments: SqlPayments) -> None:
    await payments.fill(300, 300)
    await payments.finish(await payments.claim(1000))
    await payments.enqueue()
    await payments.claim()
    await payments.advance(LEASE_OVER)
    async with payments.conn.transaction():
        assert await payments.reap() == ["ZOMBIE_REQUEUE"]
        read = await payments.conn.fetchval(
            """select coalesce(sum(pg_stat_get_xact_tuples_returned(i.inhrelid)
                                   + pg_stat_get_xact_tuples_fetched(i.inhrelid)), 0)::int
               from pg_inherits i
               where i.inhparent = 'payment_outbox_attempts'::regclass"""
        )
    assert read == 0
