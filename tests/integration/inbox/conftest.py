"""The inbox on a database of the test's own, a source, a place for effects, an application."""

from uuid import UUID

import pytest
from tests.support.inbox import Connection, SqlInbox

from penstock import Penstock


@pytest.fixture
async def inbox(conn: Connection) -> SqlInbox:
    """The inbox's verbs, with a clock that the test can move and a table for effects."""
    sql = SqlInbox(conn)
    await sql.make_clock_settable()
    await conn.execute(
        "create table effects (id bigint generated always as identity, event_id text, note text)"
    )
    return sql


@pytest.fixture
async def stripe(inbox: SqlInbox) -> UUID:
    """The id of a configured source named stripe."""
    return await inbox.source()


@pytest.fixture
def ps(database_url: str) -> Penstock:
    """An application on the same database."""
    return Penstock(database_url)
