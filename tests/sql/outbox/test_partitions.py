"""app.outbox_partitions: days ahead, whole days dropped, and no way to get stuck."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.support.outbox import SqlOutbox

from penstock.outbox import store


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


DEFAULTS = """select (select count(*) from public.outbox_archive_default),
                     (select count(*) from public.outbox_attempts_default)"""
OLD = """insert into public.outbox_archive (seq, id, topic, payload, headers, created_at,
             lease_epoch, total_attempts, replay_count, state, delivered_at)
         select n, gen_random_uuid(), 't', '{}', '{}', t.at, 1, 1, 0, 'DELIVERED', t.at
         from generate_series(1, $1::int) as n,
              (select penstock.clock() - interval '30 days' as at) as t"""


async def _in_defaults(conn: "asyncpg.Connection[asyncpg.Record]") -> tuple[int, int]:
    row = await conn.fetchrow(DEFAULTS)
    assert row is not None
    return row[0], row[1]


async def test_rows_of_a_day_without_a_partition_go_in_their_time(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    outbox = SqlOutbox(conn)
    await outbox.make_clock_settable()
    await outbox.advance(timedelta(days=40))
    await outbox.publish(3)
    done, failed, _ = await outbox.claim()
    await outbox.finish([done])
    await outbox.fail([failed], delay_s=0)
    for days, left in ((0, 1), (6, 1), (2, 0)):
        await outbox.advance(timedelta(days=days))
        await conn.execute("set role penstock_outbox_executor")
        await store.partitions(conn)
        await conn.execute("reset role")
        assert await _in_defaults(conn) == (left, left)
    assert await conn.fetchval("select count(*) from public.outbox") == 2


async def test_what_is_left_behind_goes_in_steps(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await conn.execute(OLD, 10_003)
    assert await conn.fetchval("select app.outbox_partitions()") == 10_000
    assert await _in_defaults(conn) == (3, 0)
    await conn.execute(OLD, 10_000)
    await store.partitions(conn)
    assert await _in_defaults(conn) == (0, 0)


LOCKED = """select distinct c.relname::text from pg_locks l join pg_class c on c.oid = l.relation
            where l.pid = pg_backend_pid() and l.mode = 'AccessExclusiveLock'
              and c.relname in ('outbox_archive', 'outbox_attempts')"""


@pytest.mark.parametrize(
    "table", ["outbox_archive", "outbox_attempts"], ids=["own day", "day of another table"]
)
@pytest.mark.parametrize("offset", [-20, 9], ids=["dropped", "made"])
async def test_no_rows_are_removed_under_the_lock_of_a_day(
    conn: "asyncpg.Connection[asyncpg.Record]", table: str, offset: int
) -> None:
    """It would stop all finishing for as long as the rows take."""
    await conn.execute(OLD, 3)
    day = datetime.now(UTC).date() + timedelta(days=offset)
    name = f"public.{table}_{day:%Y%m%d}"
    await conn.execute("set role penstock_owner")
    await conn.execute(
        f"drop table {name}"
        if offset > 0
        else f"create table {name} partition of public.{table}"
        f" for values from ('{day} 00:00+00') to ('{day + timedelta(days=1)} 00:00+00')"
    )
    await conn.execute("reset role")
    async with conn.transaction():
        assert await conn.fetchval("select app.outbox_partitions()") >= 10_000, "to be called again"
        assert [row[0] for row in await conn.fetch(LOCKED)] == [table]
        assert await _in_defaults(conn) == (3, 0)
    async with conn.transaction():
        assert await conn.fetchval("select app.outbox_partitions()") == 3
        assert await conn.fetch(LOCKED) == []
    assert await _in_defaults(conn) == (0, 0)


async def test_the_default_partition_stays_append_only(
    conn: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await conn.execute(
        """insert into public.outbox_attempts
               (seq, event_id, lease_token, lease_epoch, outcome, ended_at)
           select 1, gen_random_uuid(), gen_random_uuid(), 1, 'RETRY', penstock.clock() - age
           from unnest(array[interval '30 days', interval '-300 days']) as age"""
    )
    for expected in (2, 1):
        assert await _in_defaults(conn) == (0, expected)
        for change in ("delete from", "update", "truncate"):
            to = " set seq = 2" if change == "update" else ""
            with pytest.raises(asyncpg.PostgresError) as refused:
                await conn.execute(f"{change} public.outbox_attempts_default{to}")
            assert refused.value.sqlstate == "PN106"
        await conn.execute("select app.outbox_partitions()")
