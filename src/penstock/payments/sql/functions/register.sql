-- Gives the new ones among the payments their number and writes registry and pending. Which are new is
-- asked again once the counters are locked. Only the same key for two participants at the same time
-- can still meet in the registry, in order of the keys: that is one payment too many, and is refused.
create or replace function penstock_payments.register(
    p_instruction_ids  text[],
    p_participant_ids  text[],
    p_idempotency_keys text[],
    p_rail_types       text[],
    p_payloads         jsonb[],
    p_headers          jsonb,
    p_sole             boolean
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_ords integer[];
    v_ids uuid[] := '{}';
    v_sequences bigint[] := '{}';
    v_each record;
    v_count integer;
begin
    v_ords := penstock_payments.new_keys(p_instruction_ids, p_participant_ids, p_idempotency_keys);
    if v_ords = '{}' then
        return v_ids;
    end if;
    perform penstock_payments.lock_counters(array(
        select distinct p_participant_ids[n.ord] from unnest(v_ords) as n (ord) order by 1));
    v_ords := penstock_payments.new_keys(p_instruction_ids, p_participant_ids, p_idempotency_keys);
    for v_each in
        select p_participant_ids[n.ord] as participant, count(*)::integer as count
        from unnest(v_ords) as n (ord) group by 1 order by 1
    loop
        v_sequences := v_sequences || array(
            select f.first + i
            from public.bump_participant_outbox_seq(v_each.participant, v_each.count) as f (first),
                 generate_series(0, v_each.count - 1) as i order by 1);
    end loop;
    v_ids := penstock_payments.make_ids(cardinality(v_ords));
    insert into public.payment_outbox_registry
        (instruction_id, idempotency_key, outbox_id, participant_id, sequence_id, rail_type,
         payload_sha256, sole)
    select p_instruction_ids[n.ord], p_idempotency_keys[n.ord], n.id, p_participant_ids[n.ord],
           n.sequence, p_rail_types[n.ord], sha256(convert_to(p_payloads[n.ord]::text, 'UTF8')),
           p_sole
    from unnest(v_ords, v_ids, v_sequences) as n (ord, id, sequence)
    order by p_instruction_ids[n.ord], p_idempotency_keys[n.ord]
    on conflict (instruction_id, idempotency_key) do nothing;
    get diagnostics v_count = row_count;
    if v_count <> cardinality(v_ords) then
        perform penstock_payments.check_content(p_instruction_ids, p_participant_ids,
                                                p_idempotency_keys, p_rail_types, p_payloads);
        raise exception using errcode = '40001', message = 'a payment was enqueued meanwhile';
    end if;
    insert into public.payment_outbox_pending
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
         payload, headers)
    select n.id, p_instruction_ids[n.ord], p_participant_ids[n.ord], n.sequence,
           p_idempotency_keys[n.ord], p_rail_types[n.ord], p_payloads[n.ord], p_headers
    from unnest(v_ords, v_ids, v_sequences) as n (ord, id, sequence);
    return v_ids;
end
$$;

comment on function
    penstock_payments.register(text[], text[], text[], text[], jsonb[], jsonb, boolean) is
    'Store those payments whose key is new; returns their ids.';
revoke all on function
    penstock_payments.register(text[], text[], text[], text[], jsonb[], jsonb, boolean) from public;
