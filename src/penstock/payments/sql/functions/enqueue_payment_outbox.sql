-- The seed names the parameters, and who calls by name (PostgREST does) calls by these names.
create or replace function public.enqueue_payment_outbox(
    instruction_id  text,
    participant_id  text,
    idempotency_key text,
    rail_type       text,
    payload         jsonb,
    headers         jsonb default '{}'
) returns table (
    outbox_id uuid, sequence_id bigint, created_at timestamptz, state text, is_new boolean
)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select b.outbox_id, b.sequence_id, b.created_at, b.state, b.is_new
    from public.enqueue_payment_outbox_batch(
        array[instruction_id], array[participant_id], array[idempotency_key], array[rail_type],
        array[payload], headers) b
$$;

comment on function public.enqueue_payment_outbox(text, text, text, text, jsonb, jsonb) is
    'Enqueue one payment; a known key returns what it has, with other content it is refused.';
revoke all on function public.enqueue_payment_outbox(text, text, text, text, jsonb, jsonb)
    from public;
grant execute on function public.enqueue_payment_outbox(text, text, text, text, jsonb, jsonb)
    to penstock_payments_ingest;
