-- Reports whose token no longer holds anything. A repeat of what this token recorded is no news. A
-- success is never dropped: money moved. Anything else is kept as a late result and changes nothing.
create or replace function penstock_payments.late_ends(
    p_given penstock_payments.ending[],
    p_tokens uuid[],
    p_applied uuid[]
) returns table (outbox_id uuid, state text)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_late record;
begin
    for v_late in
        select e.outbox_id, e.state, e.rail_reference, e.rail_code, e.latency_ms, e.token,
               coalesce(
                   (select a.state::text from public.payment_outbox_attempts a
                    where a.outbox_id = e.outbox_id and a.lease_token = e.token
                      and a.state in ('DISPATCHED', 'RETRYABLE', 'FAILED')
                      and (e.state <> 'DISPATCHED' or a.state = 'DISPATCHED')
                    order by a.attempt_no desc limit 1),
                   (select 'HELD' from public.payment_outbox_inflight i
                    where i.outbox_id = e.outbox_id and i.held_token = e.token
                      and e.state <> 'DISPATCHED')) as known
        from unnest(p_given, p_tokens) as e (outbox_id, state, delay_s, rail_reference, rail_code,
            error_code, error_message, latency_ms, token)
        where e.outbox_id not in (select a.id from unnest(p_applied) as a (id))
    loop
        outbox_id := v_late.outbox_id;
        state := coalesce(v_late.known, 'REFUSED');
        if v_late.known is null and v_late.state = 'DISPATCHED' then
            perform public.record_late_success(v_late.outbox_id, v_late.token,
                v_late.rail_reference, v_late.rail_code, v_late.latency_ms);
            state := 'LATE';
        elsif v_late.known is null then
            perform penstock.late_result('payments', v_late.outbox_id, v_late.token, null,
                                         v_late.state, v_late.rail_code);
        end if;
        return next;
    end loop;
end
$$;

comment on function penstock_payments.late_ends(penstock_payments.ending[], uuid[], uuid[]) is
    'Deal with reports that came too late: repeats, late successes, late results.';
revoke all on function penstock_payments.late_ends(penstock_payments.ending[], uuid[], uuid[])
    from public;
