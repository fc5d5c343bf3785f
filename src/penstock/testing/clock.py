"""A settable clock: database time that a test stops and moves, so that no test ever waits.

    await clock.install(conn)
    await clock.advance(conn, timedelta(minutes=5))      # leases expire, retries become due

It replaces `penstock.clock()` in the database of the test; never use it anywhere else.
"""

from datetime import datetime, timedelta
from importlib.resources import files

from penstock.kernel.connections import AsyncConn, adapt
from penstock.kernel.tx import AsyncpgConnection


async def install(conn: AsyncpgConnection) -> None:
    """Replace the clock of this database by a settable one that still runs."""
    await conn.execute((files("penstock.testing") / "sql" / "clock.sql").read_text("utf-8"))


async def freeze(conn: AsyncConn, at: datetime) -> None:
    """Stop the clock at an instant."""
    await adapt(conn).fetch(
        "update penstock.test_clock set frozen_at = $1::text::timestamptz, shift = '0' returning 1",
        at.isoformat(),
    )


async def advance(conn: AsyncConn, by: timedelta) -> None:
    """Move the clock forward; it stays frozen, or keeps running, as it was."""
    await adapt(conn).fetch(
        "update penstock.test_clock set shift = shift + make_interval(secs => $1::float8)"
        " returning 1",
        by.total_seconds(),
    )


async def reset(conn: AsyncConn) -> None:
    """Let the clock show the real time again."""
    await adapt(conn).fetch(
        "update penstock.test_clock set frozen_at = null, shift = '0' returning 1"
    )
