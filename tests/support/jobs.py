"""Jobs published to the outbox and worked off by a real worker, and what came of them."""

from dataclasses import dataclass
from typing import TypeAlias

import asyncpg

from penstock import Penstock, Topic, WorkReport

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass
class Job:
    """A payload."""

    number: int


async def publish(conn: Connection, topic: Topic[Job], *numbers: int) -> None:
    """Publish one job per number, committed."""
    async with conn.transaction():
        await topic.publish_many(conn, [Job(number) for number in numbers])


async def work(ps: Penstock) -> WorkReport:
    """Handle everything that is ready."""
    async with ps:
        return await ps.work(until_idle=True)


async def effects(conn: Connection) -> list[int]:
    """What handlers have inserted, in order."""
    rows = await conn.fetch("select number from effects order by number")
    return [row["number"] for row in rows]


async def states(conn: Connection) -> dict[str, int]:
    """How many events are in which state."""
    rows = await conn.fetch("select state, count(*) from app.outbox_all group by 1")
    return {row["state"]: row["count"] for row in rows}
