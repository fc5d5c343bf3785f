-- A watermark may rise to just below the lowest free slot that a plain snapshot sees: slots under
-- claim are still free to it, so a claim that aborts is not passed.
create or replace function penstock_intake.raise_mark(
    p_pool_id text, p_watermark regclass, p_mark bigint
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_lowest bigint;
begin
    select s.ord into v_lowest from public.inventory_slots s
    where s.pool_id = p_pool_id and s.status = 'AVAILABLE' and s.ord > p_mark
    order by s.ord limit 1;
    perform setval(p_watermark, v_lowest - 1) where v_lowest - 1 > p_mark;
    return v_lowest is not null;
end
$$;

comment on function penstock_intake.raise_mark(text, regclass, bigint) is
    'Raise the watermark of a pool to its lowest free slot; false where none is in sight.';
revoke all on function penstock_intake.raise_mark(text, regclass, bigint) from public;
