create or replace function webhook.inbox_ready() returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint := pg_sequence_last_value('penstock.inbox_wm');
begin
    return exists (select from public.webhook_events e where e.pos > v_wm);
end
$$;

comment on function webhook.inbox_ready() is 'Whether a claim now might find something.';
revoke all on function webhook.inbox_ready() from public;
grant execute on function webhook.inbox_ready() to penstock_inbox_executor;
