-- A requeue keeps the payment's id and number, and its count never goes down.
create or replace function penstock_payments.write_departures(
    p_left penstock_payments.departed[], p_at timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
    insert into public.payment_outbox_pending as p
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
         payload, headers, created_at, attempt_count, uncounted, next_attempt_at, claim_code,
         first_sent_at)
    select g.outbox_id, g.instruction_id, g.participant_id, g.sequence_id, g.idempotency_key,
           g.rail_type, g.payload, g.headers, g.created_at, g.attempt_no + 1,
           case g.state when 'RELEASED' then g.uncounted + 2
                        when 'RESOLVED' then g.attempt_no + 1 else g.uncounted end,
           p_at + make_interval(secs => least(greatest(coalesce(g.delay_s, 0), 0), 86400)),
           case when g.state = 'RESOLVED' then 'OPERATOR_REPLAY' end,
           case when g.state <> 'RESOLVED' then g.first_sent_at end
    from unnest(p_left) g
    where g.state in ('RETRYABLE', 'ZOMBIE_REQUEUE', 'RELEASED', 'RESOLVED')
    on conflict (outbox_id) do update
        set attempt_count = greatest(p.attempt_count, excluded.attempt_count);
    insert into penstock_payments.dead_letters
        (outbox_id, participant_id, sequence_id, rail_type, error_code, error_message,
         attempt_no, blocks, created_at, dead_at, payload, headers)
    select g.outbox_id, g.participant_id, g.sequence_id, g.rail_type, g.error_code,
           g.error_message, g.attempt_no + 1,
           coalesce((select r.on_failed = 'block' from public.payment_rails r
                     where r.rail_type = g.rail_type), false),
           g.created_at, p_at, g.payload, g.headers
    from unnest(p_left) g
    where g.state = 'FAILED';
end
$$;

comment on function penstock_payments.write_departures(penstock_payments.departed[], timestamptz) is
    'Send payments back to pending, or bury them, by how their dispatch ended.';
revoke all on function
    penstock_payments.write_departures(penstock_payments.departed[], timestamptz) from public;
