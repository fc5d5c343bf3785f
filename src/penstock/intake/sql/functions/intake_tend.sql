-- Housekeeping that any process does that claims. Each statement needs its own snapshot, so a
-- caller in a stricter isolation level gets nothing done and loses nothing.
create or replace function public.intake_tend(p_now boolean default true)
returns table (reaped int, due int, swept int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_net boolean;
    v_mark bigint := pg_sequence_last_value('penstock.intake_wm');
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
    v_now timestamptz := penstock.clock();
    v_last bigint;
    v_lowest bigint;
begin
    reaped := 0; due := 0; swept := 0;
    if current_setting('transaction_isolation') <> 'read committed'
       or (not p_now and v_now_ms - pg_sequence_last_value('penstock.intake_lease') < 200)
       or not pg_try_advisory_xact_lock(hashtextextended('penstock.tend/intake', 0)) then
        return next;
        return;
    end if;
    perform setval('penstock.intake_lease', v_now_ms);
    v_net := penstock.net_due('intake');
    due := penstock_intake.bring_back(v_net, v_mark);
    swept := penstock_intake.sweep_messages(v_net);
    v_last := coalesce(pg_sequence_last_value('pgmq.q_intake_queue_msg_id_seq'), 0);
    select q.msg_id into v_lowest from pgmq.q_intake_queue q
    where q.msg_id > v_mark and q.vt <= v_now order by q.msg_id limit 1;
    perform penstock.raise_watermark('intake', coalesce(v_lowest, v_last + 1));
    reaped := penstock_intake.tend_pools(v_net);
    return next;
end
$$;

comment on function public.intake_tend(boolean) is
    'Bring back messages that are ready again, sweep late commits, raise the watermarks. Does '
    'nothing if it ran less than 0.2 s ago, unless p_now.';
revoke all on function public.intake_tend(boolean) from public;
grant execute on function public.intake_tend(boolean) to penstock_intake_executor;
