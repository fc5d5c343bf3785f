create or replace function public.ledger_prove()
returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select 'I7', 'reservation ' || o.reservation_id,
           case when o.outcome = 'CANCELLED' then 'cancelled, and yet it has a ticket'
                else 'confirmed, and yet it has no ticket' end
    from public.reservation_outcomes o
    left join public.confirmed_tickets t on t.reservation_id = o.reservation_id
        or (t.resource_id = o.resource_id and t.reservation_id is null)
    where (o.outcome = 'CONFIRMED') <> (t.resource_id is not null)
    union all
    select 'I7', 'resource ' || t.resource_id, 'its ticket has no outcome'
    from public.confirmed_tickets t
    where t.reservation_id is not null
      and not exists (select from public.reservation_outcomes o
                      where o.reservation_id = t.reservation_id)
$$;

comment on function public.ledger_prove() is
    'Violations of I7 in the ledger, in one snapshot; no rows means that it holds.';
revoke all on function public.ledger_prove() from public;
grant execute on function public.ledger_prove()
    to penstock_operator, penstock_readonly, penstock_auditor;
