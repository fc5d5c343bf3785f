create or replace function webhook.inbox_bring_due(p_from_zero boolean default false)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := penstock.time_floor('penstock.inbox_due');
    v_tids tid[];
begin
    if p_from_zero then
        v_floor := '-infinity';
    end if;
    v_tids := array(
        select e.ctid from public.webhook_events e
        where e.next_attempt_at > v_floor and e.next_attempt_at <= v_now
          and e.error_code is distinct from 'ZOMBIE_SUSPECT'
        order by e.next_attempt_at
        limit 1000
        for update skip locked);
    update public.webhook_events e
    set pos = nextval('penstock.inbox_next'), next_attempt_at = null
    where e.ctid = any (v_tids);
    return cardinality(v_tids);
end
$$;

comment on function webhook.inbox_bring_due(boolean) is
    'Make waiting events ready whose time has come, at new positions.';
revoke all on function webhook.inbox_bring_due(boolean) from public;
grant execute on function webhook.inbox_bring_due(boolean) to penstock_inbox_executor;
