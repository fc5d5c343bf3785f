-- Whoever takes ready rows one by one has to keep joint claims away till its end: they lock no rows.
create or replace function app.outbox_enter_rows() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pg_advisory_xact_lock_shared(hashtextextended('penstock.outbox_rows', 0))
$$;

comment on function app.outbox_enter_rows() is
    'Claim or change ready rows, with others who do; joint claims wait or do the same.';
revoke all on function app.outbox_enter_rows() from public;
