-- Every column in a fixed order and form: times in UTC, whatever the session says.
create or replace function penstock_payments.attempt_hash(p_prev bytea, p_attempt_id uuid)
returns bytea
language sql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
    select sha256(p_prev || convert_to(jsonb_build_array(
        a.attempt_id, a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id,
        a.idempotency_key, a.rail_type, a.payload, a.attempt_no, a.state, a.claimed_at,
        a.completed_at, a.rail_reference, a.rail_code, a.error_code, a.error_message, a.latency_ms,
        a.created_at, a.lease_token, a.lease_owner)::text, 'UTF8'))
    from public.payment_outbox_attempts a
    where a.attempt_id = p_attempt_id
$$;

comment on function penstock_payments.attempt_hash(bytea, uuid) is
    'The hash of one attempts row and the hash before it; null if the row is not there.';
revoke all on function penstock_payments.attempt_hash(bytea, uuid) from public;
