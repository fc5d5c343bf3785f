create or replace function app.outbox_bring_due(p_from_zero boolean default false) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := penstock.time_floor('penstock.outbox_due');
    v_tids tid[];
begin
    if p_from_zero then
        v_floor := '-infinity';
    end if;
    v_tids := array(
        select o.ctid from public.outbox o
        where o.next_attempt_at > v_floor and o.next_attempt_at <= v_now
          and o.error_code is distinct from 'ZOMBIE_AGAIN'
        order by o.next_attempt_at
        limit 1000
        for update skip locked);
    update public.outbox o
    set pos = nextval('penstock.outbox_next'), next_attempt_at = null
    where o.ctid = any (v_tids);
    return cardinality(v_tids);
end
$$;

comment on function app.outbox_bring_due(boolean) is
    'Make waiting events ready whose time has come, at new positions.';
revoke all on function app.outbox_bring_due(boolean) from public;
grant execute on function app.outbox_bring_due(boolean) to penstock_outbox_executor;
