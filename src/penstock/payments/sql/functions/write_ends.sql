-- The one way out of flight, in one statement, for rows that the caller has locked. The outcome's
-- number is the claim's number + 1, never max() + 1: of all that might end a dispatch exactly one
-- can be written. `= any (array[...])` joins by the index and in no other way: a plan made while
-- the tables were empty, or from statistics of such a moment, must not read them whole. (Nor may a
-- condition be the predicate of a partial index.)
create or replace function penstock_payments.write_ends(p_ends penstock_payments.ending[])
returns void
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
begin
    with e as materialized (
        select * from unnest(p_ends)
    ), gone as (
        delete from public.payment_outbox_inflight i
        using e
        where i.outbox_id = any (array[e.outbox_id]) and e.state <> 'HELD'
        returning i.*, e.state, e.delay_s, e.rail_reference, e.rail_code,
                  e.error_code as end_code, e.error_message as end_message,
                  coalesce(e.latency_ms, penstock.milliseconds(v_now)
                                         - penstock.milliseconds(i.sent_at)) as latency_ms
    ), held as (
        update public.payment_outbox_inflight i
        set held_at = v_now, held_token = i.lease_token, lease_token = null,
            lease_expires_at = null, error_code = e.error_code, error_message = e.error_message
        from e
        where i.outbox_id = any (array[e.outbox_id]) and e.state = 'HELD' and i.lease_token is not null
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
               g.claimed_at, v_now, g.rail_reference, g.rail_code, g.end_code,
               left(g.end_message, 2000), least(g.latency_ms, 2147483647)::integer, v_now,
               coalesce(g.lease_token, g.held_token), g.lease_owner
        from gone g
    ), requeued as (
        insert into public.payment_outbox_pending as p
            (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
             payload, headers, created_at, attempt_count, uncounted, next_attempt_at, claim_code,
             first_sent_at)
        select g.outbox_id, g.instruction_id, g.participant_id, g.sequence_id, g.idempotency_key,
               g.rail_type, g.payload, g.headers, g.created_at, g.attempt_no + 1,
               case g.state when 'RELEASED' then g.uncounted + 2
                            when 'RESOLVED' then g.attempt_no + 1 else g.uncounted end,
               v_now + make_interval(secs => least(greatest(coalesce(g.delay_s, 0), 0), 86400)),
               case when g.state = 'RESOLVED' then 'OPERATOR_REPLAY' end,
               case when g.state <> 'RESOLVED' then g.first_sent_at end
        from gone g
        where g.state in ('RETRYABLE', 'ZOMBIE_REQUEUE', 'RELEASED', 'RESOLVED')
        on conflict (outbox_id) do update
            set attempt_count = greatest(p.attempt_count, excluded.attempt_count)
    ), buried as (
        insert into penstock_payments.dead_letters
            (outbox_id, participant_id, sequence_id, rail_type, error_code, error_message,
             attempt_no, blocks, created_at, dead_at, payload, headers)
        select g.outbox_id, g.participant_id, g.sequence_id, g.rail_type, g.end_code,
               left(g.end_message, 2000), g.attempt_no + 1,
               coalesce((select r.on_failed = 'block' from public.payment_rails r
                         where r.rail_type = g.rail_type), false),
               g.created_at, v_now, g.payload, g.headers
        from gone g where g.state = 'FAILED'
    )
    update public.payment_outbox_registry r
    set terminal_state = g.state, terminal_at = v_now, first_sent_at = g.first_sent_at
    from gone g
    where r.outbox_id = any (array[g.outbox_id]) and g.state in ('DISPATCHED', 'FAILED');
end
$$;

comment on function penstock_payments.write_ends(penstock_payments.ending[]) is
    'Write how payments in flight end: outcome, requeue, dead letter, terminal state.';
revoke all on function penstock_payments.write_ends(penstock_payments.ending[]) from public;
