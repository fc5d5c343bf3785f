create or replace function penstock_payments.check_sole(
    p_instruction_ids text[], p_idempotency_keys text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_instruction text;
begin
    select g.instruction into v_instruction
    from unnest(p_instruction_ids, p_idempotency_keys) as g (instruction, key)
    where exists (
        select from public.payment_outbox_registry r
        where r.instruction_id = g.instruction and r.idempotency_key <> g.key offset 0)
       or exists (
        select from unnest(p_instruction_ids, p_idempotency_keys) as o (instruction, key)
        where o.instruction = g.instruction and o.key <> g.key)
    limit 1;
    if found then
        raise exception using errcode = '22023', detail = 'PN503',
            message = format('instruction %s was enqueued under another key', v_instruction),
            hint    = 'the policy allows one payment per instruction';
    end if;
end
$$;

comment on function penstock_payments.check_sole(text[], text[]) is
    'Raise 22023 if an instruction has a payment under another key.';
revoke all on function penstock_payments.check_sole(text[], text[]) from public;
