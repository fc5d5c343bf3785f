-- Depths are global per queue and read once per snapshot, not once per pool.
create or replace function public.snapshot_engine_metrics() returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into public.engine_metrics (captured_at, pool_id, available_slots, reserved_slots,
                                       consumed_slots, queue_depth, dlq_depth)
    select penstock.clock(), c.pool_id, coalesce(s.available, 0), coalesce(s.reserved, 0),
           coalesce(s.consumed, 0), depth.queue, depth.dlq
    from public.engine_config c
    cross join (select (select count(*) from pgmq.q_intake_queue) as queue,
                       (select count(*) from pgmq.q_intake_dlq) as dlq) depth
    left join (
        select i.pool_id,
               count(*) filter (where i.status = 'AVAILABLE') as available,
               count(*) filter (where i.status = 'RESERVED') as reserved,
               count(*) filter (where i.status = 'CONSUMED') as consumed
        from public.inventory_slots i group by i.pool_id
    ) s on s.pool_id = c.pool_id
    where c.is_active
    order by c.pool_id
$$;

comment on function public.snapshot_engine_metrics() is
    'Write one row of counts per active pool into engine_metrics.';
revoke all on function public.snapshot_engine_metrics() from public;
grant execute on function public.snapshot_engine_metrics()
    to penstock_intake_executor, penstock_operator;
