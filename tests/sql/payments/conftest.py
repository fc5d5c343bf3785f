"""Payments on a database of the test's own."""

from collections.abc import AsyncIterator

import pytest
from tests.support.payments import Connection, SqlPayments


@pytest.fixture
async def payments(conn: Connection) -> AsyncIterator[SqlPayments]:
    """Payments' verbs, with a clock that the test can move; at the end all invariants hold."""
    sql = SqlPayments(conn)
    await sql.make_clock_shiftable()
    yield sql
    assert await sql.violations() == []
