"""Intake and ledger as bare SQL, for tests that prove the functions and not the Python around."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from tests.support.outbox import CLOCK_SHIFTABLE

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

POOL = "demo"
# Makes the next sweep due, and its mark old enough to count, without waiting for real time.
SWEEP_DUE = "select setval('penstock.intake_swept', 0), setval('penstock.intake_at', 0)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request of a batch was answered."""

    outcome: str
    resource_id: UUID | None
    reservation_id: UUID | None


class SqlIntake:
    """Every verb of intake on one connection."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    async def stock(self, count: int, pool: str = POOL) -> None:
        """Put slots on offer."""
        await self.conn.execute("select intake_pool_stock($1, $2, 'test')", pool, count)

    async def configure(self, pool: str = POOL, /, **settings: object) -> None:
        """Write a pool's settings."""
        await self.conn.execute(
            "select intake_pool_set($1, $2::jsonb, 'test')", pool, json.dumps(settings)
        )

    async def reserve(
        self, *users: str, requests: Sequence[str | None] | None = None, pool: str = POOL
    ) -> list[Answer]:
        """Claim for many users in one call."""
        rows = await self.conn.fetch(
            "select * from intake_reserve($1, $2, $3)", pool, list(users), requests
        )
        assert [row["ordinal"] for row in rows] == list(range(1, len(users) + 1))
        return [Answer(*tuple(row)[1:]) for row in rows]

    async def buy(self, user: str, request: str | None = None, pool: str = POOL) -> UUID | None:
        """Claim by the seed's function."""
        found: UUID | None = await self.conn.fetchval(
            "select claim_resource_and_queue($1, $2, $3)", pool, user, request
        )
        return found

    async def claim(self, limit: int = 100, lease_s: int | None = None) -> list[asyncpg.Record]:
        """Lease messages."""
        return await self.conn.fetch("select * from intake_claim($1, $2)", limit, lease_s)

    async def complete(self, *rows: asyncpg.Record) -> list[str]:
        """Finish claimed messages; returns the outcome of each."""
        found = await self.conn.fetch(
            "select * from intake_complete($1, $2, $3)",
            [row["msg_id"] for row in rows],
            [row["resource_id"] for row in rows],
            [row["reservation_id"] for row in rows],
        )
        by_id = {row["msg_id"]: row["outcome"] for row in found}
        return [by_id[row["msg_id"]] for row in rows]

    async def reject(self, row: asyncpg.Record, code: str = "TEST") -> int | None:
        """Dead-letter one claimed message; returns its number in the DLQ."""
        dead: int | None = await self.conn.fetchval(
            "select intake_route_to_dlq($1, '{}', $2, $3)", row["msg_id"], row["read_ct"], code
        )
        return dead

    async def replay(self, *dead: int) -> list[str]:
        """Replay dead letters; returns the outcome of each."""
        rows = await self.conn.fetch("select * from intake_replay($1, 'test')", list(dead))
        return [row["outcome"] for row in rows]

    async def discard(self, *dead: int, cancelled: Sequence[UUID] = ()) -> list[str]:
        """Discard dead letters; returns the outcome of each."""
        rows = await self.conn.fetch(
            "select * from intake_discard($1, 'test', null, $2)", list(dead), list(cancelled)
        )
        return [row["outcome"] for row in rows]

    async def tend(self) -> asyncpg.Record:
        """Housekeeping, with a sweep that is due."""
        await self.conn.execute(SWEEP_DUE)
        found = await self.conn.fetchrow("select * from intake_tend()")
        assert found is not None
        return found

    async def counts(self, pool: str = POOL) -> tuple[int, int, int]:
        """Available, reserved and consumed slots of a pool."""
        row = await self.conn.fetchrow(
            "select available, reserved, consumed from intake_pool_stats where pool_id = $1", pool
        )
        assert row is not None
        return (row[0], row[1], row[2])

    async def depth(self, queue: str = "intake_queue") -> int:
        """Messages in a queue, leased or not."""
        found: int = await self.conn.fetchval("select queue_length from pgmq.metrics($1)", queue)
        return found

    async def slot(self, resource_id: UUID | None) -> Any:
        """A slot's row."""
        return await self.conn.fetchrow("select * from inventory_slots where id = $1", resource_id)

    async def violations(self) -> list[str]:
        """What `prove` finds in the engine."""
        rows = await self.conn.fetch("select * from intake_prove()")
        return [f"{row['invariant']} {row['subject']}: {row['detail']}" for row in rows]

    async def make_clock_shiftable(self) -> None:
        """Let `shift` move the database's clock."""
        await self.conn.execute(CLOCK_SHIFTABLE)

    async def shift(self, seconds: float) -> None:
        """Move the clock on."""
        await self.conn.execute(
            "update penstock.test_clock set shift = shift + make_interval(secs => $1)", seconds
        )
