-- Looks twice: a replay may have put a message back between the first look and the slot's lock, and
-- only a statement that begins after the lock is sure to see it. While intake is paused nothing is
-- reaped: that is how a restore is reconciled first.
create or replace function public.reap_orphaned_slots(
    p_stale_threshold interval default '10 minutes'
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before timestamptz := penstock.clock() - p_stale_threshold;
    v_ids uuid[];
    v_count int := 0;
begin
    if p_stale_threshold is null or p_stale_threshold < interval '0' then
        raise exception using errcode = '22023', message = 'the threshold must not be negative';
    end if;
    if penstock.is_paused('intake') then
        return 0;
    end if;
    v_ids := array(select o.id from penstock_intake.orphaned(v_before) o limit 10000);
    if cardinality(v_ids) = 0 then
        return 0;
    end if;
    perform penstock_intake.lock_pool(p.pool_id)
    from (select distinct s.pool_id from public.inventory_slots s where s.id = any (v_ids)
          order by s.pool_id) p;
    v_ids := array(select s.id from public.inventory_slots s
                   where s.id = any (v_ids) and s.status = 'RESERVED' and s.locked_at < v_before
                   order by s.id for update skip locked);
    update public.inventory_slots s set status = 'AVAILABLE'
    where s.id in (select o.id from penstock_intake.orphaned(v_before, v_ids) o);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function public.reap_orphaned_slots(interval) is
    'Put reserved slots back on offer that are older than the threshold, have no message in either '
    'queue and no started commit; returns how many.';
revoke all on function public.reap_orphaned_slots(interval) from public;
grant execute on function public.reap_orphaned_slots(interval)
    to penstock_intake_executor, penstock_operator;
