-- With no free slot in sight a watermark may rise to the end of the line, but only under the pool's
-- lock: then no slot is about to return. The look from zero (net) mends what a restore from a dump
-- can do: a mark newer than the rows.
create or replace function penstock_intake.tend_pools(p_net boolean) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_pool record;
    v_mark bigint;
    v_lowest bigint;
    v_last bigint;
    v_mended int := 0;
begin
    for v_pool in select m.pool_id, m.watermark from penstock_intake.pool_mark m loop
        v_mark := pg_sequence_last_value(v_pool.watermark);
        if p_net then
            select s.ord into v_lowest from public.inventory_slots s
            where s.pool_id = v_pool.pool_id and s.status = 'AVAILABLE' order by s.ord limit 1;
            if v_lowest <= v_mark then
                v_mark := v_lowest - 1;
                perform setval(v_pool.watermark, v_mark);
                v_mended := v_mended + 1;
            end if;
        end if;
        continue when penstock_intake.raise_mark(v_pool.pool_id, v_pool.watermark, v_mark);
        continue when not pg_try_advisory_xact_lock(
            hashtextextended('penstock.pool/' || v_pool.pool_id, 0));
        v_last := pg_sequence_last_value('penstock_intake.slot_ord');
        perform from public.inventory_slots s
        where s.pool_id = v_pool.pool_id and s.status = 'AVAILABLE' and s.ord > v_mark
        order by s.ord limit 1;
        perform setval(v_pool.watermark, v_last) where not found and v_last > v_mark;
    end loop;
    return v_mended;
end
$$;

comment on function penstock_intake.tend_pools(boolean) is 'Raise the watermark of every pool.';
revoke all on function penstock_intake.tend_pools(boolean) from public;
