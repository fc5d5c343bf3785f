-- States: DISPATCHED, RETRYABLE, FAILED, UNKNOWN (the effect may have happened), HELD. Returns what
-- became of each: the state recorded, LATE (an effect whose lease was lost, recorded as such) or
-- REFUSED (nothing was changed). Repeating a finish returns what it recorded the first time.
create or replace function public.finish_payment_attempts(
    p_outbox_ids      uuid[],
    p_tokens          uuid[],
    p_states          text[],
    p_delays_s        double precision[] default null,
    p_rail_references text[] default null,
    p_rail_codes      text[] default null,
    p_error_codes     text[] default null,
    p_error_messages  text[] default null,
    p_latencies_ms    integer[] default null
) returns table (outbox_id uuid, state text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_given penstock_payments.ending[];
    v_ends penstock_payments.ending[];
    v_done uuid[] := '{}';
begin
    if cardinality(p_tokens) is distinct from cardinality(p_outbox_ids)
       or cardinality(p_states) is distinct from cardinality(p_outbox_ids)
       or array_position(p_tokens, null) is not null then
        raise exception using errcode = 'PN201',
            message = 'every payment to finish needs the token of its claim and a state';
    elsif not p_states <@ array['DISPATCHED', 'RETRYABLE', 'FAILED', 'UNKNOWN', 'HELD'] then
        raise exception using errcode = 'PN005',
            message = 'a payment ends DISPATCHED, RETRYABLE, FAILED, UNKNOWN or HELD';
    end if;
    v_given := array(
        select row(g.id, g.state, g.delay_s, g.reference, g.rail_code, g.code,
                   left(g.message, 2000), g.latency_ms)::penstock_payments.ending
        from unnest(p_outbox_ids, p_states, p_delays_s, p_rail_references, p_rail_codes,
                    p_error_codes, p_error_messages, p_latencies_ms)
            as g (id, state, delay_s, reference, rail_code, code, message, latency_ms));
    if p_states <@ array['DISPATCHED'] then
        -- There is nothing to decide, unless a late success has come in between.
        v_done := penstock_payments.write_ends(v_given, p_tokens);
        if cardinality(v_done) = cardinality(v_given) then
            return query select * from unnest(p_outbox_ids, p_states);
            return;
        end if;
        return query select g.id, g.state from unnest(p_outbox_ids, p_states) as g (id, state)
                     where g.id = any (v_done);
    end if;
    v_ends := penstock_payments.decide_ends(v_given, p_tokens);
    perform penstock_payments.write_ends(v_ends);
    perform penstock_payments.alert_ends(v_ends);
    return query select e.outbox_id, e.state from unnest(v_ends) e;
    v_done := v_done || array(select e.outbox_id from unnest(v_ends) e);
    if cardinality(v_done) < cardinality(v_given) then
        return query
            select r.outbox_id, r.state
            from penstock_payments.late_ends(v_given, p_tokens, v_done) r;
    end if;
end
$$;

comment on function public.finish_payment_attempts(uuid[], uuid[], text[], double precision[],
    text[], text[], text[], text[], integer[]) is
    'Record how dispatches ended, where the token still matches; returns what became of each.';
revoke all on function public.finish_payment_attempts(uuid[], uuid[], text[], double precision[],
    text[], text[], text[], text[], integer[]) from public;
grant execute on function public.finish_payment_attempts(uuid[], uuid[], text[],
    double precision[], text[], text[], text[], text[], integer[]) to penstock_payments_executor;
