create or replace function webhook.inbox_partitions() returns integer
language sql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
    select penstock.keep_days(array['webhook_events_archive', 'webhook_attempts'], c.retention)
    from penstock.queue_config c where c.queue = 'inbox'
$$;

comment on function webhook.inbox_partitions() is
    'Create the partitions of the coming days and remove what is past retention; 10000 or more where '
    'more may be left to remove, for another call.';
revoke all on function webhook.inbox_partitions() from public;
grant execute on function webhook.inbox_partitions() to penstock_inbox_executor;
