create or replace function penstock_payments.check_items(
    p_instruction_ids  text[],
    p_participant_ids  text[],
    p_idempotency_keys text[],
    p_rail_types       text[],
    p_payloads         jsonb[],
    p_headers          jsonb
) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_item record;
begin
    if cardinality(p_instruction_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 payments in one call';
    elsif jsonb_typeof(p_headers) <> 'object' or octet_length(p_headers::text) > 8192 then
        raise exception using errcode = '22023', detail = 'PN501',
            message = 'the headers are not an object of at most 8 KiB';
    end if;
    for v_item in
        select g.*, penstock_payments.problem(g.rail, g.payload) as problem
        from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types,
                    p_payloads) as g (instruction, participant, key, rail, payload)
    loop
        if coalesce(length(v_item.instruction), 0) not between 1 and 200
           or coalesce(length(v_item.participant), 0) not between 1 and 200
           or coalesce(length(v_item.key), 0) not between 1 and 200
           or coalesce(length(v_item.rail), 0) not between 1 and 100 then
            raise exception using errcode = '22023', detail = 'PN501',
                message = 'instruction, participant, idempotency key and rail are all needed',
                hint    = 'each has 1 to 200 characters, the rail 1 to 100';
        elsif v_item.problem is not null then
            raise exception using errcode = '22023', detail = 'PN501',
                message = format('payment %s is refused: %s', v_item.instruction, v_item.problem);
        end if;
    end loop;
end
$$;

comment on function
    penstock_payments.check_items(text[], text[], text[], text[], jsonb[], jsonb) is
    'Raise 22023 for the first payment that could not be dispatched.';
revoke all on function
    penstock_payments.check_items(text[], text[], text[], text[], jsonb[], jsonb) from public;
