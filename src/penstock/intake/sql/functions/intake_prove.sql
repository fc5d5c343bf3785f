-- What one database can tell of the invariants, in one snapshot, so that it is true on a live
-- system. I1 to I3 and I7 need the ledger: intake_prove_sold and intake_prove_tickets. Watermarks
-- have no snapshot: I8 may name a slot that was claimed this moment, so look a second time.
create or replace function public.intake_prove()
returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with messages as (
        select 'queue' as place, q.msg_id, q.message ->> 'resource_id' as resource,
               q.message ->> 'reservation_id' as reservation from pgmq.q_intake_queue q
        union all
        select 'dlq', d.msg_id, d.message ->> 'resource_id', d.message ->> 'reservation_id'
        from pgmq.q_intake_dlq d
    ), held as (
        select s.id, s.status, s.commit_started_at, count(m.msg_id) as messages
        from public.inventory_slots s
        left join messages m on m.resource = s.id::text
            and coalesce(m.reservation, s.reservation_id::text) = s.reservation_id::text
        where s.status <> 'AVAILABLE'
        group by s.id
    )
    select 'I4', 'pool ' || coalesce(t.pool_id, s.pool_id),
           format('given %s slots, has %s', coalesce(t.stocked, 0), coalesce(s.slots, 0))
    from penstock_intake.pool_stock t
    full join (
        select i.pool_id, count(*) as slots from public.inventory_slots i group by i.pool_id
    ) s on s.pool_id = t.pool_id
    where coalesce(t.stocked, 0) <> coalesce(s.slots, 0)
    union all
    select 'I5', 'slot ' || h.id, format('reserved, with %s messages', h.messages)
    from held h where h.status = 'RESERVED'
        and (h.messages > 1 or h.messages = 0 and h.commit_started_at is null)
    union all
    select 'I5', m.place || ' message ' || m.msg_id, 'speaks for a slot that is on offer'
    from messages m join public.inventory_slots s on s.id::text = m.resource
    where s.status = 'AVAILABLE'
    union all
    select 'I6', 'user of pool ' || s.pool_id, format('one request id holds %s slots', count(*))
    from public.inventory_slots s where s.request_id is not null
    group by s.pool_id, s.locked_by, s.request_id having count(*) > 1
    union all
    select 'I8', 'pool ' || m.pool_id,
           format('%s free slots lie below the watermark, where no claim looks', count(*))
    from penstock_intake.pool_mark m
    join public.inventory_slots s on s.pool_id = m.pool_id and s.status = 'AVAILABLE'
    where s.ord <= pg_sequence_last_value(m.watermark)
    group by m.pool_id
    union all
    select 'I9', 'slot ' || s.id, 'on offer although its commit had started'
    from public.inventory_slots s where s.status = 'AVAILABLE' and s.commit_started_at is not null
    union all
    select 'I9', 'slot ' || s.id, 'on offer although it was retired'
    from public.inventory_slots s join penstock_intake.retired_slots r on r.id = s.id
$$;

comment on function public.intake_prove() is
    'Violations of I4, I5, I6, I8 and I9 in the engine; no rows means that they hold.';
revoke all on function public.intake_prove() from public;
grant execute on function public.intake_prove()
    to penstock_operator, penstock_readonly, penstock_auditor;
