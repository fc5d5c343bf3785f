-- The one way out of flight, for rows that the caller has locked, or by their tokens. The outcome's
-- number is the claim's number + 1, never max() + 1: of all that might end a dispatch exactly one can
-- be written. Returns what left the flight.
-- `= any (array[...])` joins by the index and in no other way: a plan made while the tables were
-- empty, or from statistics of such a moment, must not read them whole. (Nor may a condition be the
-- predicate of a partial index.)
create or replace function penstock_payments.write_ends(
    p_ends penstock_payments.ending[], p_tokens uuid[] default null
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_seed bytea := uuid_send(gen_random_uuid());
    v_head text := lpad(to_hex(penstock.milliseconds(clock_timestamp())), 12, '0') || '7';
    v_gone uuid[];
    v_left penstock_payments.departed[];
begin
    with e as materialized (
        select * from unnest(p_ends, p_tokens) as e (outbox_id, state, delay_s, rail_reference,
            rail_code, error_code, error_message, latency_ms, token)
    ), gone as (
        delete from public.payment_outbox_inflight i
        using e
        where i.outbox_id = any (array[e.outbox_id]) and e.state <> 'HELD'
          and (p_tokens is null or (i.lease_token = e.token and i.late_at is null))
        returning i.*, e.state, e.delay_s, e.rail_reference, e.rail_code,
                  e.error_code as end_code, left(e.error_message, 2000) as end_message,
                  coalesce(e.latency_ms, penstock.milliseconds(v_now)
                                         - penstock.milliseconds(i.sent_at)) as latency_ms
    ), recorded as (
        insert into public.payment_outbox_attempts
            (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,
             rail_type, payload, attempt_no, state, claimed_at, completed_at, rail_reference,
             rail_code, error_code, error_message, latency_ms, created_at, lease_token, lease_owner)
        select penstock_payments.id_of(v_head, sha256(v_seed || uuid_send(g.outbox_id))),
               g.outbox_id, g.instruction_id, g.participant_id, g.sequence_id, g.idempotency_key,
               g.rail_type, g.payload, g.attempt_no + 1,
               (case when g.state in ('RELEASED', 'RESOLVED') then 'RETRYABLE' else g.state
                end)::public.outbox_attempt_state,
               g.claimed_at, v_now, g.rail_reference, g.rail_code, g.end_code, g.end_message,
               least(g.latency_ms, 2147483647)::integer, v_now,
               coalesce(g.lease_token, g.held_token), g.lease_owner
        from gone g
    ), ended as (
        update public.payment_outbox_registry r
        set terminal_state = g.state, terminal_at = v_now, first_sent_at = g.first_sent_at
        from gone g
        where r.outbox_id = any (array[g.outbox_id]) and g.state in ('DISPATCHED', 'FAILED')
    )
    select array_agg(g.outbox_id), array_agg(row(
               g.outbox_id, g.instruction_id, g.participant_id, g.sequence_id, g.idempotency_key,
               g.rail_type, g.payload, g.headers, g.created_at, g.attempt_no, g.uncounted,
               g.first_sent_at, g.state, g.delay_s, g.end_code, g.end_message
           )::penstock_payments.departed) filter (where g.state <> 'DISPATCHED')
    into v_gone, v_left
    from gone g;
    if v_left is not null then
        perform penstock_payments.write_departures(v_left, v_now);
    end if;
    if p_tokens is null and coalesce(cardinality(v_gone), 0) < cardinality(p_ends) then
        update public.payment_outbox_inflight i
        set held_at = v_now, held_token = i.lease_token, lease_token = null,
            lease_expires_at = null, error_code = e.error_code, error_message = e.error_message
        from unnest(p_ends) e
        where i.outbox_id = any (array[e.outbox_id]) and e.state = 'HELD'
          and i.lease_token is not null;
    end if;
    return coalesce(v_gone, '{}');
end
$$;

comment on function penstock_payments.write_ends(penstock_payments.ending[], uuid[]) is
    'Write how payments in flight end: outcome, terminal state, what is held or goes on.';
revoke all on function penstock_payments.write_ends(penstock_payments.ending[], uuid[]) from public;
