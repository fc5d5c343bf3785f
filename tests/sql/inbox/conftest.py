"""The inbox on a database of the test's own."""

from uuid import UUID

import pytest
from tests.support.inbox import Connection, SqlInbox


@pytest.fixture
async def inbox(conn: Connection) -> SqlInbox:
    """The inbox's verbs, with a clock that the test can move."""
    sql = SqlInbox(conn)
    await sql.make_clock_settable()
    return sql


@pytest.fixture
async def stripe(inbox: SqlInbox) -> UUID:
    """The id of a configured source named stripe."""
    return await inbox.source()
