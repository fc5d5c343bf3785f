-- What a worker reports is not always what is recorded. A timeout is not a failure: where the rail
-- honours our key within its window it is retried, else the payment is held, because it may have been
-- paid. At the limit a retry is FAILED, an unknown one is held. Locks the rows whose token matches.
create or replace function penstock_payments.decide_ends(
    p_ends penstock_payments.ending[], p_tokens uuid[]
) returns penstock_payments.ending[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_max integer := (
        select c.max_attempts from penstock.queue_config c where c.queue = 'payments');
begin
    return array(
        with mine as materialized (
            select i.outbox_id, i.rail_type, i.phase, i.first_sent_at, i.late_at, i.late_reference,
                   i.late_code, (i.attempt_no + 1 - i.uncounted) / 2 as attempt, e.state,
                   e.delay_s, e.rail_reference, e.rail_code, e.error_code, e.error_message,
                   e.latency_ms
            from unnest(p_ends, p_tokens) as e (outbox_id, state, delay_s, rail_reference,
                rail_code, error_code, error_message, latency_ms, token)
            join public.payment_outbox_inflight i
                on i.outbox_id = any (array[e.outbox_id]) and i.lease_token = e.token
            for update of i
        ), judged as (
            select m.*,
                   case when m.late_at is not null then 'DISPATCHED'
                        when m.state = 'UNKNOWN' and m.phase = 'sent' and (
                                m.attempt >= v_max or not coalesce((
                                    select r.idempotent
                                       and m.first_sent_at + r.idempotency_window > v_now
                                           + make_interval(secs => coalesce(m.delay_s, 0)
                                                                   + r.timeout_ms / 1000.0)
                                    from public.payment_rails r
                                    where r.rail_type = m.rail_type), false))
                            then 'HELD'
                        when m.state in ('UNKNOWN', 'RETRYABLE') and m.attempt >= v_max
                            then 'FAILED'
                        when m.state = 'UNKNOWN' then 'RETRYABLE'
                        else m.state end as final
            from mine m
        )
        select row(
            j.outbox_id, j.final, coalesce(j.delay_s, penstock_payments.backoff_s(j.attempt)),
            coalesce(j.rail_reference, j.late_reference), coalesce(j.rail_code, j.late_code),
            case when j.late_at is not null and j.state <> 'DISPATCHED' then 'LATE_RESULT'
                 when j.final = 'FAILED' and j.state <> 'FAILED' then 'MAX_ATTEMPTS'
                 else coalesce(j.error_code, case j.state when 'UNKNOWN' then 'UNKNOWN' end) end,
            case when j.final = 'FAILED' and j.state <> 'FAILED'
                 then concat_ws(': ', j.error_code, j.error_message)
                 else j.error_message end,
            j.latency_ms)::penstock_payments.ending
        from judged j);
end
$$;

comment on function
    penstock_payments.decide_ends(penstock_payments.ending[], uuid[]) is
    'Lock the payments that these tokens hold and decide how each ends.';
revoke all on function penstock_payments.decide_ends(penstock_payments.ending[], uuid[])
    from public;
