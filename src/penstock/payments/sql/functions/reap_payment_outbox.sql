-- A lease that ended counts as an attempt: a payload that kills its worker must not do so for ever.
-- What may have been paid on a rail that would not recognise our key is held, never sent again.
-- Reads only what is in flight, so its cost does not grow with history.
create or replace function public.reap_payment_outbox(p_limit integer default 1000)
returns table (outbox_id uuid, state text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    v_max integer := (
        select c.max_attempts from penstock.queue_config c where c.queue = 'payments');
    v_ends penstock_payments.ending[];
begin
    v_ends := array(
        with expired as materialized (
            select i.outbox_id, i.rail_type, i.phase, i.first_sent_at, i.late_at, i.late_reference,
                   i.late_code, (i.attempt_no + 1 - i.uncounted) / 2 as attempt
            from public.payment_outbox_inflight i
            where i.held_at is null and i.lease_expires_at <= v_now
            order by i.lease_expires_at
            limit least(greatest(coalesce(p_limit, 1000), 1), 1000)
            for update skip locked
        ), judged as (
            select e.*,
                   case when e.late_at is not null then 'DISPATCHED'
                        when e.phase = 'sent' and not coalesce((
                                select r.idempotent
                                   and e.first_sent_at + r.idempotency_window > v_now
                                       + make_interval(secs => r.timeout_ms / 1000.0)
                                from public.payment_rails r where r.rail_type = e.rail_type), false)
                            then 'HELD'
                        when e.attempt >= v_max then 'FAILED'
                        else 'ZOMBIE_REQUEUE' end as final
            from expired e
        )
        select row(
            j.outbox_id, j.final, 0, j.late_reference, j.late_code,
            case j.final when 'DISPATCHED' then 'LATE_RESULT' when 'FAILED' then 'ZOMBIE_LIMIT'
                         when 'HELD' then 'ZOMBIE_SENT' else 'ZOMBIE' end,
            case when j.final = 'DISPATCHED' then null
                 when j.first_sent_at is null then 'the worker died or lost its lease'
                 else 'the worker died or lost its lease; the payment may have been made' end,
            null)::penstock_payments.ending
        from judged j);
    perform penstock_payments.write_ends(v_ends);
    perform penstock_payments.alert_ends(v_ends);
    perform penstock.note_deaths('payments', array_agg(d.outbox_id), array_agg(d.rail_type),
        array_agg((d.attempt_no + 1) / 2), array_agg(d.error_code))
    from unnest(v_ends) e
    join penstock_payments.dead_letters d on d.outbox_id = any (array[e.outbox_id])
    where e.state = 'FAILED';
    return query select e.outbox_id, e.state from unnest(v_ends) e;
end
$$;

comment on function public.reap_payment_outbox(integer) is
    'Bring payments back whose lease has ended; failed at the limit, held if they may be paid.';
revoke all on function public.reap_payment_outbox(integer) from public;
grant execute on function public.reap_payment_outbox(integer)
    to penstock_payments_executor, penstock_operator;
