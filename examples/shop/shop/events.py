"""A user's application: one topic per kind of handler."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from penstock import Batch, Event, Penstock, Tx

ps = Penstock.from_env()


@dataclass
class Order:
    number: int
    amount: Decimal = Decimal("9.90")


paid = ps.outbox.topic("orders.paid", Order)
shipped = ps.outbox.topic("orders.shipped", Order)
invoiced = ps.outbox.topic("orders.invoiced", Order)
mailed = ps.outbox.topic("orders.mailed", Order)
counted = ps.outbox.topic("orders.counted", Order)


@ps.resource
async def engine() -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(os.environ["SHOP_ENGINE_URL"])
    yield made
    await made.dispose()


@paid.on()
async def pay(event: Event[Order], tx: Tx) -> None:
    await tx.execute("insert into effects values ('paid', $1)", event.data.number)
    for following in (shipped, invoiced, mailed, counted):
        await following.publish(tx, event.data)


@shipped.on()
def ship(event: Event[Order]) -> None:
    with psycopg.connect(os.environ["PENSTOCK_DATABASE_URL"]) as conn:
        conn.execute("insert into effects values ('shipped', %s)", [event.data.number])
        event.finish_sync(conn)


@invoiced.on()
async def invoice(event: Event[Order], engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        statement = text("insert into effects values ('invoiced', :number)")
        await session.execute(statement, {"number": event.data.number})
        await event.finish(session)


@mailed.on()
async def mail(event: Event[Order]) -> None:
    print(f"mailed {event.data.number}", flush=True)


@counted.on_batch(100)
async def count(events: Batch[Order], tx: Tx) -> None:
    rows = [("counted", event.data.number) for event in events]
    await tx.executemany("insert into effects values ($1, $2)", rows)
