"""Destinations and routes as rows, and events that go to them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from penstock import Penstock, WorkReport
from penstock.kernel.events import Observation
from penstock.kernel.settings import Settings, with_values

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def application(url: str, **values: object) -> Penstock:
    """An application without handlers that may call this machine."""
    settings = with_values(Settings(), http_allow_private=("127.0.0.1/32",), **values)
    return Penstock(url, settings=settings)


async def put(
    conn: Connection,
    name: str,
    kind: str = "http",
    *,
    secrets: Sequence[str] = (),
    topic: str | None = "orders.*",
    config: dict[str, Any] | None = None,
    **values: Any,
) -> None:
    """Configure a destination, and a route to it of the same name unless topic is None."""
    given = {"config": config or {}, "secret_refs": list(secrets), **values}
    await conn.execute(
        "select app.outbox_put_destination($1, $2, $3::text::jsonb, 'test')",
        name,
        kind,
        json.dumps(given),
    )
    if topic is not None:
        await conn.execute("select app.outbox_put_route($1, $2, $1, 'test')", name, topic)


async def publish(
    conn: Connection, topic: str = "orders.paid", *, key: str | None = None, **payload: Any
) -> UUID:
    """Publish one event, committed."""
    event: UUID = await conn.fetchval(
        "select app.outbox_publish(null, $1, $2::text::jsonb, p_ordering_key => $3)",
        topic,
        json.dumps(payload),
        key,
    )
    return event


async def publish_many(conn: Connection, count: int, topic: str = "orders.paid") -> list[UUID]:
    """Publish many, in one statement."""
    rows = await conn.fetch(
        "select app.outbox_publish(null, $1, jsonb_build_object('n', n)) as id"
        " from generate_series(1, $2::integer) as n",
        topic,
        count,
    )
    return [row["id"] for row in rows]


async def states(conn: Connection, route: str) -> dict[str, int]:
    """How many deliveries of a route are in which state."""
    rows = await conn.fetch(
        "select state, count(*) from app.outbox_all where route = $1 group by 1", route
    )
    return {row["state"]: row["count"] for row in rows}


async def route_is(conn: Connection, route: str, wanted: Mapping[str, int]) -> bool:
    """Whether the deliveries of a route are in these states."""
    return await states(conn, route) == wanted


async def counts(conn: Connection, query: str, wanted: int) -> bool:
    """Whether a query counts that many."""
    found: int = await conn.fetchval(query)
    return found == wanted


async def breaker(conn: Connection, name: str) -> str:
    """The state of a breaker."""
    found: str = await conn.fetchval(
        "select breaker from public.outbox_destinations where name = $1", name
    )
    return found


@contextlib.asynccontextmanager
async def working(ps: Penstock) -> AsyncIterator[list[Observation]]:
    """A worker inside this process while the block runs; yields what it observes."""
    observed: list[Observation] = []
    ps.subscribe(observed.append)
    async with ps:
        task = asyncio.create_task(ps.work(only=["outbox"]))
        try:
            yield observed
            assert not task.done(), "the worker ended by itself"
        finally:
            ps.stop()
            await asyncio.wait_for(task, 20)


async def work_off(ps: Penstock) -> WorkReport:
    """Deliver everything that is ready, then return."""
    async with ps:
        return await ps.work(only=["outbox"], until_idle=True)
