-- One lock per key, in order of the hash, before any counter row: batches cannot deadlock each other.
create or replace function penstock_payments.lock_keys(
    p_instruction_ids text[], p_idempotency_keys text[], p_sole boolean
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(l.key)
    from (
        select distinct hashtextextended(
            case when p_sole then g.instruction else g.instruction || E'\x1f' || g.key end,
            7390118256) as key
        from unnest(p_instruction_ids, p_idempotency_keys) as g (instruction, key)
        order by 1
    ) l;
end
$$;

comment on function penstock_payments.lock_keys(text[], text[], boolean) is
    'Wait for others that enqueue the same keys; held until the transaction ends.';
revoke all on function penstock_payments.lock_keys(text[], text[], boolean) from public;
