-- Every insert goes to the permanent registry first, whose key decides at every isolation level: a
-- transaction whose snapshot is older than the first enqueue gets a serialization failure there, and
-- the row when it is repeated.
create or replace function public.enqueue_payment_outbox_batch(
    p_instruction_ids  text[],
    p_participant_ids  text[],
    p_idempotency_keys text[],
    p_rail_types       text[],
    p_payloads         jsonb[],
    p_headers          jsonb default '{}'
) returns table (
    ordinal integer, outbox_id uuid, sequence_id bigint, created_at timestamptz, state text,
    is_new boolean
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_sole boolean := (select p.unique_instruction from penstock_payments.policy p);
    v_new uuid[];
begin
    perform penstock_payments.check_items(p_instruction_ids, p_participant_ids, p_idempotency_keys,
                                          p_rail_types, p_payloads, p_headers);
    if v_sole then
        perform penstock_payments.lock_instructions(p_instruction_ids);
        perform penstock_payments.check_sole(p_instruction_ids, p_idempotency_keys);
    end if;
    v_new := penstock_payments.register(
        p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads,
        coalesce(p_headers, '{}'), v_sole);
    perform penstock_payments.check_content(p_instruction_ids, p_participant_ids,
                                            p_idempotency_keys, p_rail_types, p_payloads);
    return query
        select g.ord::integer, r.outbox_id, r.sequence_id, r.created_at,
               penstock_payments.state_of(r.outbox_id, r.terminal_state),
               r.outbox_id = any (v_new)
        from unnest(p_instruction_ids, p_idempotency_keys) with ordinality
            as g (instruction, key, ord)
        cross join lateral (
            select k.outbox_id, k.sequence_id, k.created_at, k.terminal_state
            from public.payment_outbox_registry k
            where k.instruction_id = g.instruction and k.idempotency_key = g.key offset 0) r
        order by g.ord;
end
$$;

comment on function
    public.enqueue_payment_outbox_batch(text[], text[], text[], text[], jsonb[], jsonb) is
    'Enqueue up to 1000 payments, all or none; a key that is known returns what it has.';
revoke all on function
    public.enqueue_payment_outbox_batch(text[], text[], text[], text[], jsonb[], jsonb) from public;
grant execute on function
    public.enqueue_payment_outbox_batch(text[], text[], text[], text[], jsonb[], jsonb)
    to penstock_payments_ingest;
