create or replace function public.ledger_tickets(
    p_after uuid default null, p_limit int default 10000
) returns table (
    resource_id uuid, pool_id text, user_id text, reservation_id uuid, confirmed_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select t.resource_id, t.pool_id, t.user_id, t.reservation_id, t.confirmed_at
    from public.confirmed_tickets t
    where p_after is null or t.resource_id > p_after
    order by t.resource_id
    limit least(greatest(coalesce(p_limit, 10000), 1), 100000)
$$;

comment on function public.ledger_tickets(uuid, int) is
    'All tickets by resource, in pages: for intake_reconcile and intake_prove_tickets.';
revoke all on function public.ledger_tickets(uuid, int) from public;
grant execute on function public.ledger_tickets(uuid, int)
    to penstock_ledger_writer, service_role, penstock_operator, penstock_auditor;
