-- Asked by those who are about to take a ready row out of turn, after outbox_enter_rows. An old snapshot
-- does not show the latest joint leases: then what may be under one counts as if it were.
create or replace function app.outbox_is_joint(p_seq bigint, p_pos bigint) returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select p_pos is not null and (app.outbox_joint() @> p_seq
        or (not app.outbox_sees_joint()
            and p_pos <= pg_sequence_last_value('penstock.outbox_taken')))
$$;

comment on function app.outbox_is_joint(bigint, bigint) is
    'Whether an event of this number and position is under a joint lease.';
revoke all on function app.outbox_is_joint(bigint, bigint) from public;
