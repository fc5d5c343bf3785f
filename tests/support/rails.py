"""Applications with simulated rails, and instructions for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg

from penstock.application import Penstock
from penstock.kernel.settings import load_settings
from penstock.payments.instruction import Instruction
from penstock.payments.rails import Rail
from penstock.payments.simulator import Simulator, SimulatorRail

DAY = timedelta(hours=24)
IBAN = {"iban": "DE02120300000000202051"}
_numbers = count(1)


def instruction(participant: str = "p1", *, rail: str = "ach", **values: Any) -> Instruction:
    """An instruction that nothing is wrong with, unless `values` says otherwise."""
    given: dict[str, Any] = {
        "instruction_id": f"i{next(_numbers)}",
        "amount": Decimal("10.50"),
        "currency": "EUR",
        "destination": IBAN,
        **values,
    }
    return Instruction(participant_id=participant, rail=rail, **given)


def application(url: str, **settings: object) -> Penstock:
    """An application on one database, with nothing from the environment."""
    return Penstock(url, settings=load_settings({}, None, {"database_url": url, **settings}))


class Shop:
    """An application with one simulated rail, `ach`, and a connection to look with."""

    def __init__(self, ps: Penstock, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.ps = ps
        self.conn = conn
        self.simulator = Simulator()

    def use(
        self,
        rail: Rail | None = None,
        *,
        name: str = "ach",
        key_window: timedelta | None = DAY,
        **options: Any,
    ) -> None:
        """Declare a rail; without one, the simulated one."""
        self.ps.payments.rail(
            name, rail or SimulatorRail(self.simulator), key_window=key_window, **options
        )

    async def enqueue(self, participant: str = "p1", **values: Any) -> UUID:
        """Enqueue one payment under a key of its own."""
        async with self.ps.transaction() as tx:
            made = instruction(participant, **values)
            return await self.ps.payments.enqueue(tx, made, idempotency_key="k")

    async def work(self) -> dict[str, int]:
        """Work until nothing can be claimed; what the run amounted to."""
        report = await self.ps.work(only=["payments"], until_idle=True, deadline_s=20)
        return {name: getattr(report, name) for name in ("finished", "retried", "held", "rejected")}

    async def state(self, payment: UUID) -> str:
        """Where a payment stands."""
        found: str = await self.conn.fetchval(
            "select state from supervisor_outbox_status where outbox_id = $1", payment
        )
        return found

    async def attempts(self, payment: UUID) -> list[tuple[int, str, str | None]]:
        """Number, state and code of every attempts row."""
        rows = await self.conn.fetch(
            """select attempt_no, state::text, coalesce(error_code, rail_code) as code
               from payment_outbox_attempts where outbox_id = $1 order by attempt_no""",
            payment,
        )
        return [(row[0], row[1], row[2]) for row in rows]

    async def violations(self) -> list[tuple[Any, ...]]:
        """What contradicts the invariants."""
        return [tuple(row) for row in await self.conn.fetch("select * from payment_prove()")]

    async def run_job(self, job: str) -> object:
        """Run one scheduled job of payments now."""
        async with self.ps.lending.database.connection() as conn:
            return await self.ps.payments.jobs(self.ps.lending)[job](conn)


@asynccontextmanager
async def opened(url: str, **settings: object) -> AsyncIterator[Shop]:
    """An open application with no rail yet."""
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    try:
        async with application(url, **settings) as ps:
            yield Shop(ps, conn)
    finally:
        await conn.close()
