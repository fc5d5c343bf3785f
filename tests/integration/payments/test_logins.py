"""Payments with the rights that a login of each kind has, and on the user's own driver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from tests.support.payments import KEYED, SqlPayments
from tests.support.rails import instruction, opened

from penstock.kernel.errors import NotInTransaction, NotPermitted, WrongUsage
from penstock.payments.errors import PaymentKeyReused
from penstock.payments.public import Payments


@asynccontextmanager
async def _login(
    conn: "asyncpg.Connection[asyncpg.Record]", url: str, role: str
) -> AsyncIterator[str]:
    """The address of the database for a login with one role of ours."""
    name = await conn.fetchval("select 'login_' || current_database() || '_' || $1", role[-8:])
    await conn.execute(f'create role "{name}" login in role {role}')
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    try:
        yield urlunsplit(parts._replace(netloc=f"{name}@{address}"))
    finally:
        await conn.execute(f'drop role "{name}"')


async def test_a_relayer_needs_the_executors_rights_only(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    sql = SqlPayments(conn)
    payment = await sql.enqueue()
    async with (
        _login(conn, database_url, "penstock_payments_executor") as url,
        opened(url) as shop,
    ):
        shop.use()
        with pytest.raises(WrongUsage, match="does not know it"):
            await shop.work()
        await sql.rail("ach", **KEYED)
        assert (await shop.work())["finished"] == 1
        for job in ("payments_reap", "payments_chain", "payments_resolve"):
            await shop.run_job(job)
        with pytest.raises(NotPermitted):
            await shop.enqueue()
    assert await sql.state(payment) == "DISPATCHED"


async def test_an_application_needs_the_ingest_right_only(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    sql = SqlPayments(conn)
    async with (
        _login(conn, database_url, "penstock_payments_ingest") as url,
        opened(url) as shop,
    ):
        payment = await shop.enqueue()
    assert await sql.state(payment) == "PENDING"


async def test_a_payment_is_enqueued_on_the_users_own_psycopg_connection(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    payments, made = Payments(), instruction()
    other = instruction(instruction_id=made.instruction_id, amount=1)
    async with await psycopg.AsyncConnection.connect(database_url) as own:
        payment = await payments.enqueue(own, made, idempotency_key="k")
        await own.commit()
        assert await payments.enqueue(own, made, idempotency_key="k") == payment
        with pytest.raises(PaymentKeyReused):
            await payments.enqueue(own, other, idempotency_key="k")
        await own.rollback()
    assert await SqlPayments(conn).state(payment) == "PENDING"


async def test_a_payment_is_enqueued_on_a_blocking_connection(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    payments, made = Payments(), instruction()
    other = instruction(instruction_id=made.instruction_id, amount=1)

    def pay() -> UUID:
        with psycopg.connect(database_url) as own:
            payment = payments.enqueue_sync(own, made, idempotency_key="k")
            own.commit()
            assert payments.enqueue_sync(own, made, idempotency_key="k") == payment
            with pytest.raises(PaymentKeyReused):
                payments.enqueue_sync(own, other, idempotency_key="k")
            own.rollback()
            own.autocommit = True
            with pytest.raises(NotInTransaction):
                payments.enqueue_sync(own, instruction(), idempotency_key="k")
        return payment

    assert await SqlPayments(conn).state(await asyncio.to_thread(pay)) == "PENDING"


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_payment_is_enqueued_in_the_users_own_sqlalchemy_transaction(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]", driver: str
) -> None:
    payments, made = Payments(), instruction()
    other = instruction(instruction_id=made.instruction_id, amount=1)
    parts = urlsplit(database_url)
    engine = create_async_engine(urlunsplit(parts._replace(scheme=f"postgresql+{driver}")))
    async with engine.begin() as own:
        payment = await payments.enqueue(own, made, idempotency_key="k")
        many = await payments.enqueue_many(own, [(instruction(), "k"), (instruction(), "k")])
    assert len({payment, *many}) == 3
    async with engine.connect() as own:
        with pytest.raises(PaymentKeyReused):
            await payments.enqueue(own, other, idempotency_key="k")
    await engine.dispose()
    assert await SqlPayments(conn).state(payment) == "PENDING"
