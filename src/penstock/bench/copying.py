"""Large batches by `publish_many`, and by COPY for comparison, in turns on one connection.

COPY into the outbox itself is refused where rows are secured. A producer can copy into a
temporary table and insert from there: no row of that is logged, but each is written twice.
"""

from itertools import repeat
from time import monotonic

import msgspec

from penstock.application import Penstock
from penstock.bench.kernel import PAYLOAD, TOPIC
from penstock.kernel.codec import encode
from penstock.kernel.ids import uuid7
from penstock.kernel.tx import AsyncpgConnection

STAGE = """
create temporary table publishing (
    id uuid not null, payload jsonb not null check (pg_column_size(payload) <= 1048576)
) on commit drop
"""
MOVE = """
insert into public.outbox (id, topic, payload)
select p.id, $1, p.payload from pg_temp.publishing p
"""


async def rates(conn: AsyncpgConnection, batch: int, seconds: float) -> tuple[float, float]:
    """Events per second by publish_many and by COPY, in transactions of so many events."""
    topic = Penstock().outbox.topic(TOPIC, dict[str, object])
    payload: dict[str, object] = msgspec.json.decode(PAYLOAD)
    made, by_many, by_copy = 0, 0.0, 0.0
    while by_many + by_copy < seconds:
        started = monotonic()
        async with conn.transaction():
            await topic.publish_many(conn, repeat(payload, batch))
        between = monotonic()
        async with conn.transaction():
            await _copy(conn, payload, batch)
        by_many += between - started
        by_copy += monotonic() - between
        made += batch
    return made / by_many, made / by_copy


async def _copy(conn: AsyncpgConnection, payload: dict[str, object], count: int) -> None:
    await conn.execute(STAGE)
    await conn.copy_records_to_table(
        "publishing",
        columns=("id", "payload"),
        records=((uuid7(), encode(each)) for each in repeat(payload, count)),
    )
    await conn.execute(MOVE, TOPIC)
