-- However long a snapshot is held, only what lies above the floor is read.
create or replace function app.outbox_joint() returns int8multirange
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_floor bigint := pg_sequence_last_value('penstock.outbox_joint_floor');
begin
    return (select coalesce(range_agg(j.seqs), '{}') from public.outbox_joint_leases j
            where j.number > v_floor);
end
$$;

comment on function app.outbox_joint() is 'The events that are under joint leases.';
revoke all on function app.outbox_joint() from public;
