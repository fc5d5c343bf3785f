-- Housekeeping that any claimer does when its interval has passed: expired leases and due rows come
-- back at new positions, late commits are swept up, the watermark rises. Nothing here waits: rows
-- that somebody holds are skipped and found next time.
create or replace function app.outbox_tend(p_now boolean default true)
returns table (reaped integer, due integer, swept integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    v_net boolean;
    v_lo bigint;
    v_hi bigint;
begin
    reaped := 0; due := 0; swept := 0;
    if not p_now and penstock.milliseconds(clock_timestamp())
                     - pg_sequence_last_value('penstock.outbox_swept') < 500 then
        return next;
        return;
    end if;
    v_net := penstock.net_due('outbox');
    reaped := app.outbox_reap(v_net);
    due := app.outbox_bring_due(v_net);
    select s.lo, s.hi into v_lo, v_hi from penstock.begin_sweep('outbox') s;
    if found then
        v_lo := case when v_net then -1 else v_lo end;
        with late as (
            select o.ctid from public.outbox o
            where o.pos > v_lo and o.pos <= v_hi
            order by o.pos limit 1000 for update skip locked
        )
        update public.outbox o set pos = nextval('penstock.outbox_next')
        where o.ctid = any (array(select l.ctid from late l));
        get diagnostics swept = row_count;
        perform penstock.end_sweep('outbox', (
            select o.pos from public.outbox o
            where o.pos > v_lo and o.pos <= v_hi order by o.pos limit 1));
    end if;
    perform penstock.raise_watermark('outbox', (
        select o.pos from public.outbox o
        where o.pos > pg_sequence_last_value('penstock.outbox_wm') order by o.pos limit 1));
    return next;
end
$$;

comment on function app.outbox_tend(boolean) is
    'Reap, bring back due rows, sweep late commits, raise the watermark; safe at any time.';
revoke all on function app.outbox_tend(boolean) from public;
grant execute on function app.outbox_tend(boolean) to penstock_outbox_executor;
