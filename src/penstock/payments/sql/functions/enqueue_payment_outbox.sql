create or replace function public.enqueue_payment_outbox(
    p_instruction_id  text,
    p_participant_id  text,
    p_idempotency_key text,
    p_rail_type       text,
    p_payload         jsonb,
    p_headers         jsonb default '{}'
) returns table (
    outbox_id uuid, sequence_id bigint, created_at timestamptz, state text, is_new boolean
)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select b.outbox_id, b.sequence_id, b.created_at, b.state, b.is_new
    from public.enqueue_payment_outbox_batch(
        array[p_instruction_id], array[p_participant_id], array[p_idempotency_key],
        array[p_rail_type], array[p_payload], p_headers) b
$$;

comment on function public.enqueue_payment_outbox(text, text, text, text, jsonb, jsonb) is
    'Enqueue one payment; a known key returns what it has, with other content it is refused.';
revoke all on function public.enqueue_payment_outbox(text, text, text, text, jsonb, jsonb)
    from public;
grant execute on function public.enqueue_payment_outbox(text, text, text, text, jsonb, jsonb)
    to penstock_payments_ingest;
