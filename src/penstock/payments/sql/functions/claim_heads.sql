create or replace function penstock_payments.claim_heads(p_ids uuid[], p_owner uuid)
returns table (
    outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint,
    idempotency_key text, rail_type text, payload jsonb, headers jsonb, created_at timestamptz,
    attempt_no integer, attempt integer, max_attempts integer, claimed_at timestamptz,
    lease_token uuid, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer,
    first_sent_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_config record;
begin
    select c.lease_s, c.max_attempts into v_config
    from penstock.queue_config c where c.queue = 'payments';
    return query
        select l.outbox_id, l.instruction_id, l.participant_id, l.sequence_id, l.idempotency_key,
               l.rail_type, l.payload, l.headers, l.created_at, l.attempt_no,
               (l.attempt_no + 1 - l.uncounted) / 2, v_config.max_attempts, l.claimed_at,
               l.lease_token, ((l.attempt_no + 1) / 2)::bigint, l.lease_expires_at,
               v_config.lease_s, l.first_sent_at
        from penstock_payments.lease_heads(p_ids, p_owner, v_config.lease_s) l;
end
$$;

comment on function penstock_payments.claim_heads(uuid[], uuid) is
    'Lease those of the payments that are due heads, by the numbers of the queue.';
revoke all on function penstock_payments.claim_heads(uuid[], uuid) from public;
