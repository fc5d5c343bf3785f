-- An old snapshot does not show the latest joint leases. Below the highest position that any of them has
-- taken, it must not look for ready events.
create or replace function app.outbox_mark() returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select case when current_setting('transaction_isolation') = 'read committed'
                then pg_sequence_last_value('penstock.outbox_wm')
                else greatest(pg_sequence_last_value('penstock.outbox_wm'),
                              pg_sequence_last_value('penstock.outbox_taken')) end
$$;

comment on function app.outbox_mark() is 'Claims of rows look above this position only.';
revoke all on function app.outbox_mark() from public;
