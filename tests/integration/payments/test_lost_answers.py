"""The database did it and its answer was lost: asked again, it tells, and does nothing twice."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.support.payments import Connection, SqlPayments
from tests.support.proxy import Proxy
from tests.support.rails import DAY, Shop, instruction, opened
from tests.support.waiting import until

from penstock.kernel.errors import DatabaseUnreachable
from penstock.payments.public import Payments


@pytest.mark.parametrize("reached", [True, False])
async def test_an_enqueue_lost_in_its_commit_is_repeated_under_its_key(
    database_url: str, conn: Connection, reached: bool
) -> None:
    payments, made = Payments(), instruction()
    async with Proxy(database_url) as proxy:
        own: Connection = await asyncpg.connect(proxy.url)
        if reached:
            proxy.cut_after_commit()
        else:
            proxy.cut_before_commit()
        found = []
        with pytest.raises((DatabaseUnreachable, asyncpg.PostgresError, OSError)):
            async with own.transaction():
                found.append(await payments.enqueue(own, made, idempotency_key="k"))
    rows = await conn.fetch("select outbox_id from payment_outbox_registry")
    assert [row["outbox_id"] for row in rows] == (found if reached else [])
    async with conn.transaction():
        again = await payments.enqueue(conn, made, idempotency_key="k")
        other = await payments.enqueue(conn, instruction(), idempotency_key="k")
    assert (again == found[0]) == reached
    numbers = await conn.fetch("select outbox_id, sequence_id from payment_outbox_registry")
    assert {row["outbox_id"]: row["sequence_id"] for row in numbers} == {again: 1, other: 2}
    assert await SqlPayments(conn).violations() == []


async def test_a_finish_whose_answer_is_lost_pays_nothing_twice_and_loses_nothing(
    database_url: str, conn: Connection
) -> None:
    """What was claimed with it is known to nobody: its lease ends, and then it goes."""
    sql = SqlPayments(conn)
    await sql.make_clock_shiftable()
    async with Proxy(database_url) as proxy, opened(proxy.url, listen="off") as shop:
        shop.use()
        first, second, third = [await shop.enqueue("p1") for _ in range(3)]
        asked: list[bytes] = []

        def the_finish(data: bytes) -> bool:
            """The leave to send names the payment first; the second to name it is the finish."""
            if first.bytes in data:
                asked.append(data)
            return len(asked) == 2

        proxy.swallow_answer_to = the_finish
        assert (await shop.work())["finished"] == 1
        assert proxy.swallowed == 1
        assert await sql.state(first) == "DISPATCHED"
        assert await sql.state(second) == "DISPATCHING", "claimed with it, and nobody knows"
        await sql.advance(timedelta(seconds=75))
        assert await sql.reap() == ["ZOMBIE_REQUEUE"]
        assert (await shop.work())["finished"] == 2
        await until(lambda: _ended(conn), "all have ended")
        keys = [effect.key for effect in shop.simulator.effects]
    assert keys == [first, second, third]
    assert await sql.violations() == []


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_leave_to_send_whose_answer_is_lost_sends_nothing_then_and_once_later(
    database_url: str, conn: Connection, *, keyed: bool
) -> None:
    sql = SqlPayments(conn)
    await conn.execute("update penstock.queue_config set backoff_base_s = 0.01")
    async with Proxy(database_url) as proxy, opened(proxy.url, listen="off") as shop:
        shop.simulator.keyed = keyed
        shop.use(key_window=DAY if keyed else None)
        payment = await shop.enqueue()
        # The first to name the payment is its leave to send.
        proxy.swallow_answer_to = lambda data: payment.bytes in data
        await shop.work()
        assert proxy.swallowed == 1
        await until(lambda: _worked(shop, payment), "it is paid")
        assert shop.simulator.calls == [payment]
    assert (await sql.attempts(payment))[1] == (2, "RETRYABLE", "DATABASE")
    assert await sql.violations() == []


async def _worked(shop: Shop, payment: UUID) -> bool:
    await shop.work()
    return await shop.state(payment) == "DISPATCHED"


async def _ended(conn: Connection) -> bool:
    left: int = await conn.fetchval(
        "select count(*) from payment_outbox_registry where terminal_state is null"
    )
    return left == 0
