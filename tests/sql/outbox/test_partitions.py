"""app.outbox_partitions: days ahead, whole days dropped, and no way to get stuck."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox


async def _days(conn: "asyncpg.Connection[asyncpg.Record]", table: str) -> list[str]:
    rows = await conn.fetch(
        "select right(c.relname, 8) as day from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = $1::regclass and c.relname ~ '[0-9]{8}$' order by 1",
        f"public.{table}",
    )
    return [row["day"] for row in rows]


def _from_today(*offsets: int) -> list[str]:
    today = datetime.now(UTC).date()
    return [f"{today + timedelta(days=offset):%Y%m%d}" for offset in offsets]


async def test_two_weeks_are_kept_ahead_and_old_days_go(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    for table in ("outbox_archive", "outbox_attempts"):
        assert await _days(conn, table) == _from_today(*range(15))
    await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    await outbox.advance(timedelta(days=10))
    await conn.execute("select app.outbox_partitions()")
    for table in ("outbox_archive", "outbox_attempts"):
        assert await _days(conn, table) == _from_today(*range(3, 25)), "seven days are kept"
    assert await conn.fetchval("select count(*) from public.outbox_archive") == 0


async def test_a_row_is_kept_for_the_whole_of_its_retention(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    (event,) = await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    await outbox.advance(timedelta(days=7))
    await conn.execute("select app.outbox_partitions()")
    assert await outbox.state(event) == "DELIVERED"


async def test_only_finished_events_are_ever_dropped(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    (event,) = await outbox.publish(1)
    await outbox.advance(timedelta(days=400))
    await conn.execute("select app.outbox_partitions()")
    assert await outbox.state(event) == "READY"


async def test_days_missed_for_weeks_do_not_stop_the_days_ahead(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.advance(timedelta(days=40))
    (event,) = await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    assert await conn.fetchval("select count(*) from public.outbox_archive_default") == 1
    await conn.execute("select app.outbox_partitions()")
    assert await _days(conn, "outbox_archive") == _from_today(*range(41, 55))
    assert await _days(conn, "outbox_attempts") == _from_today(*range(40, 55))
    await outbox.advance(timedelta(days=1))
    await conn.execute("select app.outbox_partitions()")
    await outbox.publish(1)
    await outbox.finish(await outbox.claim())
    assert await conn.fetchval("select count(*) from public.outbox_archive_default") == 1
    assert await outbox.state(event) == "DELIVERED"


async def test_running_it_again_changes_nothing(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    before = await _days(conn, "outbox_archive")
    await conn.execute("select app.outbox_partitions()")
    assert await _days(conn, "outbox_archive") == before


async def test_no_retention_drops_today_or_a_day_to_come(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """Even one that the check on the column would not let in."""
    await conn.execute(
        "alter table penstock.queue_config drop constraint if exists queue_config_retention_check"
    )
    await SqlOutbox(conn).policy(retention=timedelta(days=-3))
    await conn.execute("select app.outbox_partitions()")
    for table in ("outbox_archive", "outbox_attempts"):
        assert await _days(conn, table) == _from_today(*range(15))


@pytest.mark.parametrize("retention", [timedelta(), timedelta(hours=23), timedelta(days=-3)])
async def test_retention_is_a_day_at_least(
    conn: "asyncpg.Connection[asyncpg.Record]", retention: timedelta
) -> None:
    outbox = SqlOutbox(conn)
    with pytest.raises(asyncpg.CheckViolationError):
        await outbox.policy(retention=retention)
    await outbox.policy(retention=timedelta(days=1))
