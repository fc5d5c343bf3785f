-- Grouped by participant, in the order given; of a key that stands twice the first counts. `offset 0`
-- makes each look a probe by the key, also in a session whose plans were made while the registry was
-- empty.
create or replace function penstock_payments.new_keys(
    p_instruction_ids text[], p_participant_ids text[], p_idempotency_keys text[]
) returns integer[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return array(
        select n.ord from (
            select distinct on (g.instruction, g.key) g.participant, g.ord::integer as ord
            from unnest(p_instruction_ids, p_idempotency_keys, p_participant_ids) with ordinality
                as g (instruction, key, participant, ord)
            where not exists (
                select from public.payment_outbox_registry r
                where r.instruction_id = g.instruction and r.idempotency_key = g.key
                offset 0)
            order by g.instruction, g.key, g.ord
        ) n
        order by n.participant, n.ord);
end
$$;

comment on function penstock_payments.new_keys(text[], text[], text[]) is
    'The ordinals of those payments whose key the registry does not know.';
revoke all on function penstock_payments.new_keys(text[], text[], text[]) from public;
