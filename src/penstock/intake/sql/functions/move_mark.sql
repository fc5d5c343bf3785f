-- A claim walks over whatever has been sold since the watermark moved, and while a snapshot is held
-- nothing else makes that way shorter. So whoever finds it long moves the mark, as tend_pools does:
-- to just below the lowest slot that a plain snapshot sees free. It comes before the claim writes,
-- in a transaction that has not written: what may be undone is still free to that snapshot.
create or replace function penstock_intake.move_mark(
    p_pool_id text, p_watermark regclass, p_mark bigint, p_first tid
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    c_stride constant bigint := 256;
    v_lowest bigint;
begin
    if (select s.ord from public.inventory_slots s where s.ctid = p_first) <= p_mark + c_stride then
        return;
    end if;
    select s.ord into v_lowest from public.inventory_slots s
    where s.pool_id = p_pool_id and s.status = 'AVAILABLE' and s.ord > p_mark
    order by s.ord limit 1;
    perform setval(p_watermark, v_lowest - 1) where v_lowest - 1 > p_mark;
end
$$;

comment on function penstock_intake.move_mark(text, regclass, bigint, tid) is
    'Move the watermark of a pool up if a claim had a long way to its first slot.';
revoke all on function penstock_intake.move_mark(text, regclass, bigint, tid) from public;
