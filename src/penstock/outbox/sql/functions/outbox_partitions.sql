create or replace function app.outbox_partitions() returns integer
language sql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
    select penstock.keep_days(array['outbox_archive', 'outbox_attempts'], c.retention)
    from penstock.queue_config c where c.queue = 'outbox'
$$;

comment on function app.outbox_partitions() is
    'Create the partitions of the coming days and remove what is past retention; 10000 or more where '
    'more may be left to remove, for another call.';
revoke all on function app.outbox_partitions() from public;
grant execute on function app.outbox_partitions() to penstock_outbox_executor;
