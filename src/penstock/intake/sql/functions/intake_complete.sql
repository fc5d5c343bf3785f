-- CONSUMED and the removal of the message stand or fall together. The fence is the reservation, not
-- the lease: the ledger has confirmed it, so it is true whoever says so. What the engine no longer
-- holds for that reservation is kept as a late result and told to the caller.
create or replace function public.intake_complete(
    p_msg_ids bigint[], p_resource_ids uuid[], p_reservation_ids uuid[]
) returns table (msg_id bigint, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_msgs bigint[]; v_outcomes text[]; v_reservations uuid[]; v_gone text[];
begin
    with asked as materialized (
        select a.msg_id, a.id, a.reservation_id
        from unnest(p_msg_ids, p_resource_ids, p_reservation_ids) as a (msg_id, id, reservation_id)
        order by a.id
    ), consumed as (
        update public.inventory_slots s
        set status = 'CONSUMED', consumed_at = penstock.clock(),
            commit_started_at = coalesce(s.commit_started_at, penstock.clock())
        from asked a
        where s.id = a.id and s.reservation_id = a.reservation_id and s.status::text = 'RESERVED'
        returning s.id
    ), answered as (
        select a.msg_id, a.reservation_id, a.id,
               case when c.id is not null then 'consumed'
                    when exists (select from public.inventory_slots s
                                 where s.id = a.id and s.reservation_id = a.reservation_id
                                   and s.status = 'CONSUMED') then 'already'
                    else 'stale' end as outcome
        from asked a left join consumed c on c.id = a.id
    ), removed as (
        delete from pgmq.q_intake_queue q using answered a
        where q.msg_id = a.msg_id and a.outcome <> 'stale'
          and q.message ->> 'resource_id' = a.id::text
        returning q.msg_id
    )
    select array_agg(a.msg_id), array_agg(a.outcome), array_agg(a.reservation_id),
           array_agg(a.reservation_id::text)
               filter (where a.outcome <> 'stale' and r.msg_id is null)
    into v_msgs, v_outcomes, v_reservations, v_gone
    from answered a left join removed r on r.msg_id = a.msg_id;
    -- The message may have been dead-lettered while its commit was under way.
    if v_gone is not null then
        delete from pgmq.q_intake_dlq d where d.message ->> 'reservation_id' = any (v_gone);
    end if;
    if 'stale' = any (v_outcomes) then
        perform penstock.late_result('intake', r.id, r.id, null, 'done', 'PN305')
        from unnest(v_reservations, v_outcomes) as r (id, outcome)
        where r.outcome = 'stale' and r.id is not null;
    end if;
    return query select * from unnest(v_msgs, v_outcomes);
end
$$;

comment on function public.intake_complete(bigint[], uuid[], uuid[]) is
    'After the ledger confirmed: slots become CONSUMED and their messages go. Outcome per message: '
    'consumed, already (done before) or stale (the slot is not held by this reservation).';
revoke all on function public.intake_complete(bigint[], uuid[], uuid[]) from public;
grant execute on function public.intake_complete(bigint[], uuid[], uuid[])
    to penstock_intake_executor;
