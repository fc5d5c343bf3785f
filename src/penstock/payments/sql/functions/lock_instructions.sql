-- One lock per instruction, in order of the hash: only where the policy allows one payment each, for
-- that no row of the registry can say beforehand.
create or replace function penstock_payments.lock_instructions(p_instruction_ids text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(l.key)
    from (
        select distinct hashtextextended(g.instruction, 7390118256) as key
        from unnest(p_instruction_ids) as g (instruction)
        order by 1
    ) l;
end
$$;

comment on function penstock_payments.lock_instructions(text[]) is
    'Wait for others that enqueue the same instructions; held until the transaction ends.';
revoke all on function penstock_payments.lock_instructions(text[]) from public;
