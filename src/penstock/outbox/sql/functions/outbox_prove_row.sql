-- A row of a relay table against its event and the deliveries of that. A dispatch that was given back
-- unused does not count; one that was cut off because its route went does. What was sent once more
-- later is no part of it.
create or replace function app.outbox_prove_row(p_id uuid, p_status text, p_count integer)
returns table (invariant text, detail text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with piece as (
        select o.id, 'OPEN' as state, o.total_attempts from public.outbox o where o.id = p_id
        union all
        select d.id, 'OPEN', d.total_attempts from public.outbox o
        join public.outbox d on d.parent = o.seq where o.id = p_id
        union all
        select a.id, a.state, a.total_attempts from public.outbox_archive a where a.id = p_id
        union all
        select a.id, a.state, a.total_attempts from public.outbox_archive a
        where a.event_id = p_id and not a.headers ? 'penstock-resend'
    ), told as (
        select count(*) filter (where p.id = p_id and p.state = 'OPEN') as open,
               count(*) filter (where p.id = p_id and p.state = 'DELIVERED') as delivered,
               count(*) filter (where p.state in ('DISCARDED', 'CANCELLED')) as given_up,
               coalesce(sum(p.total_attempts), 0) - (
                   select count(*) from public.outbox_attempts t
                   where t.event_id in (select p.id from piece p) and t.outcome = 'RELEASED'
                     and t.error_code is distinct from 'ROUTE_REMOVED') as started
        from piece p
    )
    select f.invariant, f.detail from told t
    cross join lateral (values
        ('L1', 'is ' || p_status || ', but nobody has it',
         p_status <> 'SENT' and t.open = 0 and t.given_up = 0),
        ('L3', 'is SENT, but its event is not delivered',
         p_status = 'SENT' and (t.delivered = 0 or t.open > 0 or t.given_up > 0)),
        ('L4', format('counts %s dispatches, but %s were started', p_count, t.started),
         p_count <> t.started)
    ) as f (invariant, detail, broken)
    where f.broken
$$;

comment on function app.outbox_prove_row(uuid, text, integer) is
    'What does not hold of one row of a relay table.';
revoke all on function app.outbox_prove_row(uuid, text, integer) from public;
