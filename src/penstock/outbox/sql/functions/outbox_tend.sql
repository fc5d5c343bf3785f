-- Housekeeping that any claimer does when its interval has passed: expired leases and due rows come
-- back at new positions, late commits are swept up, the watermark rises. Nothing here waits: rows
-- that somebody holds are skipped and found next time.
create or replace function app.outbox_tend(p_now boolean default true)
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
    v_joint int8multirange;
begin
    reaped := 0; due := 0; swept := 0;
    -- Watermark and floors are sequences, which no abort takes back. So they rise first, by what is
    -- committed, and not in a transaction that sees changes of its own.
    if pg_current_xact_id_if_assigned() is not null
       or (not p_now and abs(penstock.milliseconds(clock_timestamp())
                             - pg_sequence_last_value('penstock.outbox_swept')) < 500) then
        return next;
        return;
    end if;
    perform app.outbox_raise_floors();
    -- Not beside a joint claim: it locks no row, and might take what is given a new position here.
    v_sweep := pg_try_advisory_xact_lock_shared(hashtextextended('penstock.outbox_rows', 0));
    if v_sweep then
        select s.lo, s.hi into v_lo, v_hi from penstock.begin_sweep('outbox') s;
        v_sweep := found;
    end if;
    if v_sweep then
        v_net := penstock.net_due('outbox');
        v_lo := case when v_net then -1 else v_lo end;
        v_joint := app.outbox_joint();
        perform penstock.end_sweep('outbox', (
            select o.pos from public.outbox o
            where o.pos > v_lo and o.pos <= v_hi and not v_joint @> o.seq
            order by o.pos limit 1));
    end if;
    reaped := app.outbox_reap(v_net);
    due := app.outbox_bring_due(v_net);
    if v_sweep then
        due := due + app.outbox_bring_suspect(v_net) + app.outbox_bring_keys();
        with late as (
            select o.ctid from public.outbox o
            where o.pos > v_lo and o.pos <= v_hi and not v_joint @> o.seq
            order by o.pos limit 1000 for update skip locked
        )
        update public.outbox o set pos = nextval('penstock.outbox_next')
        where o.ctid = any (array(select l.ctid from late l));
        get diagnostics swept = row_count;
    end if;
    return next;
end
$$;

comment on function app.outbox_tend(boolean) is
    'Raise the watermark, reap, bring back due rows, sweep late commits; safe at any time.';
revoke all on function app.outbox_tend(boolean) from public;
grant execute on function app.outbox_tend(boolean) to penstock_outbox_executor;
