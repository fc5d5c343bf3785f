"""Places an order. The order and the event that tells of it are one commit: both, or neither."""

import asyncio
import sys
from dataclasses import dataclass

from penstock import Penstock

ps = Penstock.from_env()


@dataclass
class OrderPlaced:
    order_id: int
    customer: str
    total: str


order_placed = ps.outbox.topic("orders.placed", OrderPlaced)


async def place(customer: str, total: str) -> int:
    async with ps, ps.transaction() as tx:
        await tx.execute(
            "create table if not exists orders (id serial, customer text, total numeric)"
        )
        order_id: int = await tx.fetchval(
            "insert into orders (customer, total) values ($1, $2::text::numeric) returning id",
            customer,
            total,
        )
        event = OrderPlaced(order_id, customer, total)
        await order_placed.publish(tx, event, ordering_key=customer)
        if customer == "nobody":
            raise SystemExit(
                "nobody cannot order: the transaction is undone, and the event with it"
            )
    return order_id


if __name__ == "__main__":
    print("placed order", asyncio.run(place(sys.argv[1], sys.argv[2])))
