"""What fault tests share: a fleet of real workers on the test's own database."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox
from tests.support.workers import Fleet


@pytest.fixture
async def outbox(conn: "asyncpg.Connection[asyncpg.Record]") -> SqlOutbox:
    """The outbox with a short lease, and the table that transactional handlers write to."""
    await conn.execute("create table public.effects (event_id uuid not null)")
    sql = SqlOutbox(conn)
    await sql.policy(lease_s=1, backoff_base_s=0.1, backoff_cap_s=0.3)
    return sql


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path, outbox: SqlOutbox) -> AsyncIterator[Fleet]:
    """Workers on that database; none outlives the test."""
    async with Fleet(database_url, tmp_path) as workers:
        yield workers
