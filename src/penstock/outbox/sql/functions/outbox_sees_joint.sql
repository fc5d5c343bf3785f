-- Asked after outbox_enter_rows, when no joint claim is under way. They go one after the other to the
-- commit, so whoever sees the last sees all. A transaction id that this server has not given yet comes
-- from the one whose data were restored here: nobody claims there for us.
create or replace function app.outbox_sees_joint() returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    v_last xid8;
begin
    if current_setting('transaction_isolation') = 'read committed' then
        return true;
    end if;
    v_last := pg_sequence_last_value('penstock.outbox_joint_xid')::text::xid8;
    return pg_visible_in_snapshot(v_last, pg_current_snapshot()) or v_last > pg_current_xact_id();
end
$$;

comment on function app.outbox_sees_joint() is
    'Whether every joint lease that counts is visible to this transaction.';
revoke all on function app.outbox_sees_joint() from public;
