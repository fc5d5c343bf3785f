"""Payments as bare SQL, for tests that prove the functions and not the Python around them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from tests.support.outbox import CLOCK_SHIFTABLE

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Session: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

PAYLOAD = json.dumps(
    {"amount": "10.50", "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}
)
ENQUEUE = "select * from enqueue_payment_outbox($1, $2, $3, $4, $5::text::jsonb)"
CLAIM = "select outbox_id, lease_token from claim_payment_outbox(100)"
KEYED = {"idempotent": True, "idempotency_window": "24 hours", "timeout_ms": 30000}


@dataclass(frozen=True, slots=True)
class Flight:
    """One payment that a claim returned."""

    id: UUID
    token: UUID
    participant: str
    sequence: int
    attempt_no: int
    attempt: int
    epoch: int


class SqlPayments:
    """Every verb of payments on one connection."""

    def __init__(self, conn: Session) -> None:
        self.conn = conn
        self._made = 0

    async def enqueue(
        self,
        participant: str = "p1",
        *,
        instruction: str | None = None,
        key: str = "k",
        rail: str = "ach",
        payload: str = PAYLOAD,
    ) -> UUID:
        """Enqueue one payment, under a new instruction unless one is given."""
        self._made += 1
        row = await self.conn.fetchrow(
            ENQUEUE, instruction or f"i{self._made}", participant, key, rail, payload
        )
        assert row is not None
        found: UUID = row["outbox_id"]
        return found

    async def fill(self, count: int, participants: int, name: str = "fill") -> None:
        """Enqueue many at once, spread over participants."""
        for start in range(0, count, 1000):
            numbers = range(start, min(start + 1000, count))
            await self.conn.fetch(
                "select * from enqueue_payment_outbox_batch($1, $2, $3, $4, $5::text[]::jsonb[])",
                [f"{name}{n}" for n in numbers],
                [f"q{n % participants:05}" for n in numbers],
                ["k"] * len(numbers),
                ["ach"] * len(numbers),
                [PAYLOAD] * len(numbers),
            )

    async def rail(self, name: str = "ach", **values: Any) -> None:
        """Set a rail's policy."""
        await self.conn.execute(
            "select put_payment_rail($1, $2::text::jsonb, 'test')", name, json.dumps(values)
        )

    async def policy(self, **values: Any) -> None:
        """Set switches of the product."""
        await self.conn.execute(
            "select put_payment_policy($1::text::jsonb, 'test')", json.dumps(values)
        )

    async def config(self, **values: object) -> None:
        """Change the queue's numbers."""
        for name, value in values.items():
            await self.conn.execute(
                f"update penstock.queue_config set {name} = $1 where queue = 'payments'", value
            )

    async def claim(self, limit: int = 100, **options: Any) -> list[Flight]:
        """Claim; options: owner, after, rails, skip, probes."""
        named = "".join(f", p_{name} => ${at}" for at, name in enumerate(options, start=2))
        rows = await self.conn.fetch(
            "select * from claim_payment_outbox($1" + named + ")", limit, *options.values()
        )
        return [_flight(row) for row in rows if row["outbox_id"] is not None]

    async def send(self, flights: Sequence[Flight]) -> set[UUID]:
        """The last look before sending; returns what may be sent."""
        rows = await self.conn.fetch(
            "select outbox_id from mark_payment_sent($1, $2)", *_keys(flights)
        )
        return {row["outbox_id"] for row in rows}

    async def finish(
        self,
        flights: Sequence[Flight],
        state: str = "DISPATCHED",
        *,
        delay_s: float | None = 0,
        reference: str | None = None,
        code: str | None = None,
    ) -> list[str]:
        """End dispatches; returns what became of each."""
        count = len(flights)
        rows = await self.conn.fetch(
            "select * from finish_payment_attempts($1, $2, $3, $4, $5, null, $6)",
            *_keys(flights),
            [state] * count,
            [delay_s] * count,
            [reference] * count,
            [code] * count,
        )
        became = {row["outbox_id"]: row["state"] for row in rows}
        return [became[flight.id] for flight in flights]

    async def finish_and_claim(
        self,
        flights: Sequence[Flight],
        state: str = "DISPATCHED",
        *,
        participants: Sequence[str] | None = None,
        delay_s: float = 0,
        latency_ms: int | None = None,
        rails: Sequence[str] | None = None,
        skip: Sequence[str] = (),
    ) -> tuple[list[str], list[Flight]]:
        """End dispatches and claim the next of their participants: what became of each, claims."""
        count = len(flights)
        nothing = [None] * count
        rows = await self.conn.fetch(
            "select * from finish_and_claim_payments($1, $2, $3, $4, $5, $5, $5, $5, $6, $7,"
            " $8, $9, $10)",
            *(*_keys(flights), [state] * count, [delay_s] * count, nothing, [latency_ms] * count),
            *(participants or [flight.participant for flight in flights], uuid4(), rails, skip),
        )
        became = {row["ended_id"]: row["ended_state"] for row in rows}
        claims = [_flight(row) for row in rows if row["outbox_id"] is not None]
        return [became[flight.id] for flight in flights], claims

    async def paid_and_claim(
        self,
        flights: Sequence[Flight],
        *,
        reference: str | None = None,
        rails: Sequence[str] | None = None,
        skip: Sequence[str] = (),
    ) -> tuple[list[str], list[Flight]]:
        """The same for what was paid, the quick way: what that leaves out is finished after it."""
        rows = await self.conn.fetch(
            "select * from finish_paid_and_claim($1, $2, $3, null, $4, $5, $6, $7)",
            *(*_keys(flights), [reference] * len(flights), [7] * len(flights), uuid4()),
            *(rails, skip),
        )
        ended = {row["ended_id"] for row in rows}
        left = [flight for flight in flights if flight.id not in ended]
        became = dict(zip((flight.id for flight in left), await self.finish(left), strict=True))
        claims = [_flight(row) for row in rows if row["outbox_id"] is not None]
        return [became.get(flight.id, "DISPATCHED") for flight in flights], claims

    async def extend(self, flights: Sequence[Flight]) -> set[UUID]:
        """Prolong leases; returns what is lost."""
        rows = await self.conn.fetch(
            "select outbox_id from extend_payment_leases($1, $2)", *_keys(flights)
        )
        return {row["outbox_id"] for row in rows}

    async def release(self, flights: Sequence[Flight]) -> int:
        """Give back what was not sent."""
        count: int = await self.conn.fetchval(
            "select release_payment_outbox($1, $2)", *_keys(flights)
        )
        return count

    async def reap(self) -> list[str]:
        """Deal with ended leases; returns what became of them."""
        rows = await self.conn.fetch("select state from reap_payment_outbox() order by 1")
        return [row["state"] for row in rows]

    async def fail(self, participant: str = "p1", *, sent: bool = True, **options: Any) -> UUID:
        """A payment that failed."""
        found = await self.enqueue(participant, **options)
        flights = [f for f in await self.claim() if f.id == found]
        if sent:
            await self.send(flights)
        assert await self.finish(flights, "FAILED", code="REJECTED") == ["FAILED"]
        return found

    async def hold(self, participant: str = "p1", **options: Any) -> Flight:
        """A payment of unknown outcome, held."""
        found = await self.enqueue(participant, **options)
        (flight,) = [f for f in await self.claim() if f.id == found]
        await self.send([flight])
        assert await self.finish([flight], "UNKNOWN") == ["HELD"]
        return flight

    async def state(self, payment: UUID) -> str | None:
        """Where a payment stands."""
        found: str | None = await self.conn.fetchval(
            "select state from supervisor_outbox_status where outbox_id = $1", payment
        )
        return found

    async def attempts(self, payment: UUID) -> list[tuple[int, str, str | None]]:
        """Number, state and error code of every attempts row."""
        rows = await self.conn.fetch(
            """select attempt_no, state::text, error_code from payment_outbox_attempts
               where outbox_id = $1 order by attempt_no""",
            payment,
        )
        return [(row[0], row[1], row[2]) for row in rows]

    async def violations(self) -> list[tuple[Any, ...]]:
        """What contradicts the invariants."""
        return [tuple(row) for row in await self.conn.fetch("select * from payment_prove()")]

    async def make_clock_shiftable(self) -> None:
        """Replace the one clock by a shiftable one, in this database only."""
        await self.conn.execute(CLOCK_SHIFTABLE)

    async def advance(self, by: timedelta) -> None:
        """Move the database's clock, for everybody."""
        await self.conn.execute("update penstock.test_clock set shift = shift + $1", by)


def _flight(row: asyncpg.Record) -> Flight:
    return Flight(
        row["outbox_id"],
        row["lease_token"],
        row["participant_id"],
        row["sequence_id"],
        row["attempt_no"],
        row["attempt"],
        row["lease_epoch"],
    )


def _keys(flights: Sequence[Flight]) -> tuple[list[UUID], list[UUID]]:
    return [flight.id for flight in flights], [flight.token for flight in flights]
