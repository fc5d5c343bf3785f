create or replace view penstock_intake.dead as
    select 'intake'::text as queue, penstock_intake.dead_id(d.msg_id, d.message) as id,
           d.message ->> 'pool_id' as topic, 'DEAD'::text as state,
           d.headers ->> 'error_code' as error_code,
           penstock.fingerprint(d.headers ->> 'error_code', d.headers ->> 'error') as fingerprint,
           d.headers ->> 'error' as error, (d.message ->> 'final_read_ct')::integer as attempts,
           d.enqueued_at as created_at, d.enqueued_at as dead_at
    from pgmq.q_intake_dlq d;
comment on view penstock_intake.dead is 'Dead letters of intake.';

create or replace view penstock_intake.stats as
    select 'intake'::text as queue,
           count(*) filter (where q.vt <= c.now and q.read_ct = 0) as ready,
           count(*) filter (where q.vt > c.now and q.headers ? 'waiting') as scheduled,
           count(*) filter (where q.vt > c.now and q.read_ct > 0
                            and not coalesce(q.headers ? 'waiting', false)) as leased,
           count(*) filter (where q.vt <= c.now and q.read_ct > 0) as expired,
           (select count(*) from pgmq.q_intake_dlq) as dead, 0::bigint as held,
           extract(epoch from max(c.now - q.enqueued_at))::double precision as oldest_age_s
    from (select penstock.clock() as now) c left join pgmq.q_intake_queue q on true;
comment on view penstock_intake.stats is 'Depth and trouble of intake, from the queues only.';

create or replace view public.intake_pool_stats as
    select p.pool_id, coalesce(c.is_active, true) as is_active, i.opens_at, i.closes_at,
           i.max_per_user, i.hold_s, coalesce(t.stocked, 0) as stocked,
           coalesce(s.available, 0) as available, coalesce(s.reserved, 0) as reserved,
           coalesce(s.consumed, 0) as consumed
    from (select pool_id from public.engine_config union select pool_id from public.intake_pools
          union select pool_id from penstock_intake.pool_stock) p
    left join public.engine_config c on c.pool_id = p.pool_id
    left join public.intake_pools i on i.pool_id = p.pool_id
    left join penstock_intake.pool_stock t on t.pool_id = p.pool_id
    left join (
        select x.pool_id, count(*) filter (where x.status = 'AVAILABLE') as available,
               count(*) filter (where x.status = 'RESERVED') as reserved,
               count(*) filter (where x.status = 'CONSUMED') as consumed
        from public.inventory_slots x group by x.pool_id
    ) s on s.pool_id = p.pool_id;
comment on view public.intake_pool_stats is 'Every pool with its policy and counts.';
