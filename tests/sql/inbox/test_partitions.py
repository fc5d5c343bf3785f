"""webhook.inbox_partitions: whatever retention says, today and the days ahead stay."""

from datetime import timedelta

from tests.support.inbox import SqlInbox

from penstock.inbox import store

DAYS = """
select c.relname::text as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('webhook_events_archive'::regclass, 'webhook_attempts'::regclass)
order by 1
"""


async def test_no_retention_drops_today_or_a_day_to_come(inbox: SqlInbox) -> None:
    """Even one that the check on the column would not let in."""
    await inbox.conn.execute(
        "alter table penstock.queue_config drop constraint if exists queue_config_retention_check"
    )
    before = await inbox.conn.fetch(DAYS)
    assert len(before) >= 30
    await inbox.policy(retention=timedelta(days=-3))
    await inbox.conn.execute("select webhook.inbox_partitions()")
    assert await inbox.conn.fetch(DAYS) == before


async def test_rows_of_a_day_without_a_partition_go_in_their_time(inbox: SqlInbox) -> None:
    await inbox.advance(timedelta(days=40))
    done, failed = await inbox.send(await inbox.source(), "e1", "e2")
    items = {item.id: item for item in await inbox.claim()}
    await inbox.finish([items[done]])
    await inbox.fail([items[failed]], delay_s=0)
    await inbox.advance(timedelta(hours=2))
    await inbox.conn.execute("select webhook.inbox_keep()")
    for days, left in ((0, 1), (6, 1), (2, 0)):
        await inbox.advance(timedelta(days=days))
        await store.partitions(inbox.conn)
        for table in ("webhook_events_archive", "webhook_attempts"):
            count = f"select count(*) from public.{table}_default"
            assert await inbox.conn.fetchval(count) == left, table
