"""webhook.inbox_partitions: whatever retention says, today and the days ahead stay."""

from datetime import timedelta

from tests.support.inbox import SqlInbox

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
