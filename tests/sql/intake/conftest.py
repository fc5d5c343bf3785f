"""Intake on a database of the test's own."""

import pytest
from tests.support.intake import Connection, SqlIntake


@pytest.fixture
async def intake(conn: Connection) -> SqlIntake:
    """Intake's verbs, with a clock that the test can move."""
    sql = SqlIntake(conn)
    await sql.make_clock_shiftable()
    return sql
