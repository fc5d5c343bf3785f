"""A payment that one process claims twice, because its first lease ran out unnoticed.

The database answers by payment. Both claims asked in one statement, and the leave of the second was
taken for the first's as well: a rail without keys paid twice.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast
from uuid import uuid4

import asyncpg
import pytest
from tests.support.payments import SqlPayments

from penstock.kernel.database import Database
from penstock.kernel.events import Events
from penstock.kernel.queue import Outcome
from penstock.kernel.verdict import DONE, Unknown
from penstock.payments.queue import Payment, PaymentsQueue
from penstock.payments.relayer import Permits


class Twice:
    """One payment, claimed, lost and claimed again by the same queue object."""

    def __init__(self, database: Database, sql: SqlPayments) -> None:
        self.database = database
        self.sql = sql
        self.queue = PaymentsQueue(["ach"], Events())
        self.first: Payment
        self.second: Payment

    async def claim(self) -> Payment:
        """Claim the one payment there is."""
        self.queue = PaymentsQueue(["ach"], Events())
        async with self.database.connection() as conn:
            (found,) = await self.queue.claim(conn, limit=10, owner=uuid4())
        return cast(Payment, found)


@pytest.fixture
async def twice(
    database_url: str, conn: "asyncpg.Connection[asyncpg.Record]"
) -> AsyncIterator[Twice]:
    database = Database(database_url)
    await database.open()
    sql = SqlPayments(conn)
    await sql.make_clock_shiftable()
    await sql.enqueue()
    made = Twice(database, sql)
    made.first = await made.claim()
    await sql.advance(timedelta(minutes=3))
    assert await sql.reap() == ["ZOMBIE_REQUEUE"]
    made.second = await made.claim()
    yield made
    await database.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_only_the_newest_claim_gets_leave_when_both_ask_at_once(
    twice: Twice, order: tuple[int, int]
) -> None:
    claims = [twice.first.claim, twice.second.claim]
    answers = await Permits(twice.database).ask_all([claims[at] for at in order])
    by_claim = dict(zip(order, answers, strict=True))
    assert by_claim[0] == 0.0, "the first claim has lost its lease"
    assert by_claim[1] > 0.0


async def test_only_the_newest_claim_is_extended(twice: Twice) -> None:
    async with twice.database.connection() as conn:
        lost = await twice.queue.extend(conn, [twice.first, twice.second])
    assert lost == [twice.first]


async def test_a_late_success_is_recorded_beside_the_outcome_of_the_newer_claim(
    twice: Twice,
) -> None:
    twice.first.reference = "paid-by-the-first"
    outcomes = [Outcome(twice.second, Unknown(code="LOST")), Outcome(twice.first, DONE)]
    async with twice.database.connection() as conn:
        assert await twice.queue.finish(conn, outcomes) == [twice.first]
    assert await twice.sql.state(twice.first.id) == "DISPATCHED"
    assert await twice.sql.violations() == []
