"""The outbox as bare SQL, for tests that prove the functions and not the Python around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CLOCK_SHIFTABLE = """
create table if not exists penstock.test_clock (shift interval not null);
insert into penstock.test_clock select interval '0' where not exists (
    select from penstock.test_clock);
grant select on penstock.test_clock to public;
create or replace function penstock.clock() returns timestamptz language sql volatile
as $$ select clock_timestamp() + (select shift from penstock.test_clock) $$;
"""
# Makes the next tend sweep, and the mark old enough to count, without waiting for real time.
SWEEP_DUE = """
select setval('penstock.outbox_swept', 0), setval('penstock.outbox_at', 0)
"""


@dataclass(frozen=True, slots=True)
class Leased:
    """One row that a claim returned."""

    seq: int
    id: UUID
    topic: str
    token: UUID
    attempts: int
    epoch: int


class SqlOutbox:
    """Every verb of the outbox on one connection."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    async def publish(
        self,
        count: int = 1,
        *,
        topic: str = "t",
        after: timedelta | None = None,
        key: str | None = None,
        tenant: UUID | None = None,
    ) -> list[UUID]:
        """Publish events, one statement each, in order."""
        query = """select app.outbox_publish(null, $1, $2::jsonb, p_deliver_at =>
                   case when $3::interval is not null then penstock.clock() + $3 end,
                   p_ordering_key => $4, p_tenant => $5)"""
        return [
            await self.conn.fetchval(query, topic, f'{{"n": {number}}}', after, key, tenant)
            for number in range(count)
        ]

    async def claim(
        self,
        limit: int | None = 100,
        *,
        token: UUID | None = None,
        joint: bool = False,
        **options: Any,
    ) -> list[Leased]:
        """Claim under a fresh token (or the given one); options: tenant, owner, topics, skip."""
        named = "".join(f", p_{name} => ${at}" for at, name in enumerate(options, start=3))
        function = "outbox_claim_joint" if joint else "outbox_claim"
        rows = await self.conn.fetch(
            f"select * from app.{function}($1, $2{named})",
            limit,
            token or uuid4(),
            *options.values(),
        )
        return [
            Leased(
                row["seq"],
                row["id"],
                row["topic"],
                row["processing_token"],
                row["attempts"],
                row["lease_epoch"],
            )
            for row in rows
        ]

    async def finish(self, items: Sequence[Leased]) -> list[int]:
        """Finish as delivered; returns the refused ones."""
        rows = await self.conn.fetch(
            "select seq from app.outbox_finish($1, $2, $3)",
            [item.seq for item in items],
            [item.id for item in items],
            [item.token for item in items],
        )
        return [row["seq"] for row in rows]

    async def fail(
        self,
        items: Sequence[Leased],
        verdict: str = "retry",
        *,
        delay_s: float = 0.0,
        code: str = "BROKEN",
        error: str = "it did not work",
    ) -> list[int]:
        """End attempts with a verdict; returns the refused ones."""
        rows = await self.conn.fetch(
            "select seq from app.outbox_mark_failed($1, $2, $3, $4, $5, $6, $7)",
            [item.seq for item in items],
            [item.id for item in items],
            [item.token for item in items],
            [verdict] * len(items),
            [delay_s] * len(items),
            [code] * len(items),
            [error] * len(items),
        )
        return [row["seq"] for row in rows]

    async def extend(self, items: Sequence[Leased]) -> list[int]:
        """Prolong leases; returns the lost ones."""
        rows = await self.conn.fetch(
            "select seq from app.outbox_extend($1, $2)",
            [item.seq for item in items],
            [item.token for item in items],
        )
        return [row["seq"] for row in rows]

    async def release(self, items: Sequence[Leased]) -> int:
        """Give rows back that have not started."""
        count: int = await self.conn.fetchval(
            "select app.outbox_release($1, $2)",
            [item.seq for item in items],
            [item.token for item in items],
        )
        return count

    async def tend(self, *, sweep: bool = False) -> tuple[int, int, int]:
        """Housekeeping now; with `sweep` the sweep is due as well, whatever the real time."""
        if sweep:
            await self.conn.execute(SWEEP_DUE)
        row = await self.conn.fetchrow("select reaped, due, swept from app.outbox_tend()")
        assert row is not None
        return row["reaped"], row["due"], row["swept"]

    async def state(self, event: UUID) -> str | None:
        """The state of an event, wherever it is; None when there is no such event."""
        found: str | None = await self.conn.fetchval(
            "select state from app.outbox_all where id = $1", event
        )
        return found

    async def policy(self, **values: object) -> None:
        """Change the queue's numbers."""
        for name, value in values.items():
            await self.conn.execute(
                f"update penstock.queue_config set {name} = $1 where queue = 'outbox'", value
            )

    async def make_clock_settable(self) -> None:
        """Replace the one clock by a shiftable one, in this database only."""
        await self.conn.execute(CLOCK_SHIFTABLE)

    async def advance(self, by: timedelta) -> None:
        """Move the database's clock, for everybody."""
        await self.conn.execute("update penstock.test_clock set shift = shift + $1", by)


class Routed(SqlOutbox):
    """An outbox with destinations `a` and `b` and what tests ask of routes."""

    async def route(
        self, name: str, topic: str, *, to: str = "a", where: str | None = None
    ) -> None:
        """Put a route."""
        await self.conn.execute("set role penstock_control")
        await self.conn.execute("select app.outbox_put_destination($1, 'stdout', '{}', 'test')", to)
        await self.conn.execute(
            "select app.outbox_put_route($1, $2, $3, 'test', p_filter => $4::text::jsonpath)",
            *(name, topic, to, where),
        )
        await self.conn.execute("reset role")

    async def expand(self) -> int:
        """The step between publish and claim."""
        count: int = await self.conn.fetchval("select app.outbox_expand()")
        return count

    async def deliveries(self, event: UUID) -> dict[str, str]:
        """The state of each delivery of an event, by route."""
        rows = await self.conn.fetch(
            "select route, state from app.outbox_deliveries where event_id = $1", event
        )
        return {row[0]: row[1] for row in rows}

    async def one(self, *topics: str) -> Leased:
        """Claim exactly one."""
        (item,) = await self.claim(topics=list(topics))
        return item
