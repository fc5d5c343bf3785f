"""Fixtures of the command line: a migrated database and some dead events in it."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from tests.support.cli import Cli, make_cli


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Command lines on the test's own database, with an environment of ours alone."""
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    return make_cli(capsys, "--database", database_url)


@pytest.fixture
def sync_conn(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A plain connection for tests that run commands, which own the event loop."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def dead_events(sync_conn: psycopg.Connection[tuple[object, ...]]) -> list[UUID]:
    """Three dead events: two with HTTP_503 on orders.paid, one with BAD on orders.sent."""
    rows = sync_conn.execute(
        """
        insert into public.outbox (topic, payload, pos, dead_at, error_code, error, attempts)
        select t, '{"card": "4111-canary"}', null, penstock.clock(), c, e, 10
        from (values ('orders.paid', 'HTTP_503', 'upstream 17 failed'),
                     ('orders.paid', 'HTTP_503', 'upstream 18 failed'),
                     ('orders.sent', 'BAD', 'nonsense')) v(t, c, e)
        returning id
        """
    ).fetchall()
    return [UUID(str(row[0])) for row in rows]
