-- At repeatable read nothing is swept, so a claim looks through what a sweep would. If its snapshot is so
-- old that it does not show the latest joint leases, it must not look for ready events below the highest
-- position that any of them has taken: those that are left are for a later transaction.
create or replace function app.outbox_mark() returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select case when current_setting('transaction_isolation') = 'read committed'
                then pg_sequence_last_value('penstock.outbox_wm')
                when app.outbox_sees_joint()
                then pg_sequence_last_value('penstock.outbox_floor')
                else greatest(pg_sequence_last_value('penstock.outbox_floor'),
                              pg_sequence_last_value('penstock.outbox_taken')) end
$$;

comment on function app.outbox_mark() is 'Claims of rows look above this position only.';
revoke all on function app.outbox_mark() from public;
