create or replace function public.ledger_outcomes(p_reservation_ids uuid[])
returns table (reservation_id uuid, outcome text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select o.reservation_id, o.outcome from public.reservation_outcomes o
    where o.reservation_id = any (p_reservation_ids)
$$;

comment on function public.ledger_outcomes(uuid[]) is
    'The final word on these reservations, where there is one: ask before dead-lettering.';
revoke all on function public.ledger_outcomes(uuid[]) from public;
grant execute on function public.ledger_outcomes(uuid[])
    to penstock_ledger_writer, service_role, penstock_operator, penstock_readonly, penstock_auditor;
