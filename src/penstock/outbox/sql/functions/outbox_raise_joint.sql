-- Only by who has entered and has changed nothing: numbers are given and committed one after the other
-- there, so that no lease can appear below the lowest that is seen, and a sequence is not undone.
create or replace function app.outbox_raise_joint() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_floor bigint := pg_sequence_last_value('penstock.outbox_joint_floor');
    v_lowest bigint := coalesce(
        (select j.number from public.outbox_joint_leases j
         where j.number > v_floor order by j.number limit 1),
        pg_sequence_last_value('penstock.outbox_joint_next') + 1);
begin
    if v_lowest - 1 > v_floor then
        perform setval('penstock.outbox_joint_floor', v_lowest - 1);
    end if;
end
$$;

comment on function app.outbox_raise_joint() is
    'Move the floor of joint leases up to just below the lowest that has not ended.';
revoke all on function app.outbox_raise_joint() from public;
