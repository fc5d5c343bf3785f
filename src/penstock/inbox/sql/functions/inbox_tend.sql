-- Housekeeping that any claimer does when its interval has passed: expired leases and due rows come
-- back at new positions, late commits are swept up, the watermark rises. Nothing here waits: rows
-- that somebody holds are skipped and found next time.
create or replace function webhook.inbox_tend(p_now boolean default true)
returns table (reaped integer, due integer, swept integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_net boolean := false;
    v_sweep boolean;
    v_lo bigint;
    v_hi bigint;
begin
    reaped := 0; due := 0; swept := 0;
    -- Watermark and floors are sequences, which no abort takes back. So they rise first, by what is
    -- committed, and not in a transaction that sees changes of its own.
    if pg_current_xact_id_if_assigned() is not null
       or (not p_now and abs(penstock.milliseconds(clock_timestamp())
                             - pg_sequence_last_value('penstock.inbox_swept')) < 500) then
        return next;
        return;
    end if;
    perform webhook.inbox_raise_floors();
    select s.lo, s.hi into v_lo, v_hi from penstock.begin_sweep('inbox') s;
    v_sweep := found;
    if v_sweep then
        v_net := penstock.net_due('inbox');
        v_lo := case when v_net then -1 else v_lo end;
        perform penstock.end_sweep('inbox', (
            select e.pos from public.webhook_events e
            where e.pos > v_lo and e.pos <= v_hi order by e.pos limit 1));
    end if;
    reaped := webhook.inbox_reap(v_net);
    due := webhook.inbox_bring_due(v_net);
    if v_sweep then
        due := due + webhook.inbox_bring_suspect(v_net);
        with late as (
            select e.ctid from public.webhook_events e
            where e.pos > v_lo and e.pos <= v_hi
            order by e.pos limit 1000 for update skip locked
        )
        update public.webhook_events e set pos = nextval('penstock.inbox_next')
        where e.ctid = any (array(select l.ctid from late l));
        get diagnostics swept = row_count;
    end if;
    return next;
end
$$;

comment on function webhook.inbox_tend(boolean) is
    'Raise the watermark, reap, bring back due rows, sweep late commits; safe at any time.';
revoke all on function webhook.inbox_tend(boolean) from public;
grant execute on function webhook.inbox_tend(boolean) to penstock_inbox_executor;
