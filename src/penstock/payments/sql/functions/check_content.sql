create or replace function penstock_payments.check_content(
    p_instruction_ids  text[],
    p_participant_ids  text[],
    p_idempotency_keys text[],
    p_rail_types       text[],
    p_payloads         jsonb[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_key text;
begin
    select format('%s/%s', g.instruction, g.key) into v_key
    from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types,
                p_payloads) as g (instruction, participant, key, rail, payload)
    cross join lateral (
        select k.participant_id, k.rail_type, k.payload_sha256
        from public.payment_outbox_registry k
        where k.instruction_id = g.instruction and k.idempotency_key = g.key offset 0) r
    where r.participant_id <> g.participant or r.rail_type <> g.rail
       or r.payload_sha256 <> sha256(convert_to(g.payload::text, 'UTF8'))
    limit 1;
    if found then
        raise exception using errcode = '22023', detail = 'PN502',
            message = format('key %s was used for another payment', v_key),
            hint    = 'repeat a payment with the same participant, rail and payload; '
                      'a different payment needs a key of its own';
    end if;
end
$$;

comment on function
    penstock_payments.check_content(text[], text[], text[], text[], jsonb[]) is
    'Raise 22023 if a key was used with another participant, rail or payload.';
revoke all on function penstock_payments.check_content(text[], text[], text[], text[], jsonb[])
    from public;
