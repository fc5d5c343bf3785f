-- A row of the archive has the time of its statement and appears with its commit, maybe much later. Who
-- has written there holds a lock on the table or the day till then, and that everybody may read. A lock is
-- taken before the time: who is not seen here wrote nothing older than this look.
create or replace function app.outbox_archiving() returns text[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}')
    from pg_locks l
    where l.locktype = 'relation'
      and l.relation in (select t.relid from pg_partition_tree('public.outbox_archive') t)
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.mode = 'RowExclusiveLock' and l.granted and l.pid is distinct from pg_backend_pid()
$$;

comment on function app.outbox_archiving() is
    'The other transactions that have written to the archive and are still open.';
revoke all on function app.outbox_archiving() from public;
