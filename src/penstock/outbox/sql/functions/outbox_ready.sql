create or replace function app.outbox_ready() returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint := pg_sequence_last_value('penstock.outbox_wm');
    v_joint int8multirange := app.outbox_joint();
begin
    return exists (
        select from public.outbox o where o.pos > v_wm and not v_joint @> o.seq);
end
$$;

comment on function app.outbox_ready() is 'Whether a claim now might find something.';
revoke all on function app.outbox_ready() from public;
grant execute on function app.outbox_ready() to penstock_outbox_executor;
