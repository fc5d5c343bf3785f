-- Tickets are read in the ledger first and compared here afterwards: a ticket never goes away, so
-- whatever differs then is a violation even while both databases are at work.
create or replace function public.intake_prove_tickets(
    p_resource_ids uuid[], p_user_ids text[], p_reservation_ids uuid[]
) returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select case when s.id is null or s.status = 'AVAILABLE' then 'I3' else 'I1' end,
           'slot ' || t.id,
           case when r.id is not null then 'ticket for a retired slot'
                when s.id is null then 'ticket for a slot that does not exist'
                when s.status = 'AVAILABLE' then 'ticket for a slot that is on offer'
                else 'the ticket is another reservation''s than the slot' end
    from unnest(p_resource_ids, p_user_ids, p_reservation_ids) as t (id, user_id, reservation_id)
    left join public.inventory_slots s on s.id = t.id
    left join penstock_intake.retired_slots r on r.id = t.id
    where s.id is null or s.status = 'AVAILABLE' or s.locked_by <> t.user_id
       or s.reservation_id <> t.reservation_id
$$;

comment on function public.intake_prove_tickets(uuid[], text[], uuid[]) is
    'Tickets of the ledger that contradict the engine (I1, I3); no rows means that they hold.';
revoke all on function public.intake_prove_tickets(uuid[], text[], uuid[]) from public;
grant execute on function public.intake_prove_tickets(uuid[], text[], uuid[])
    to penstock_operator, penstock_readonly, penstock_auditor;
