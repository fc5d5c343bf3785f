create or replace function public.intake_prove_sold(
    p_after uuid default null, p_limit int default 10000
) returns table (resource_id uuid, pool_id text, user_id text, reservation_id uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.id, s.pool_id, s.locked_by, s.reservation_id
    from public.inventory_slots s
    where s.status = 'CONSUMED' and (p_after is null or s.id > p_after)
    order by s.id
    limit least(greatest(coalesce(p_limit, 10000), 1), 100000)
$$;

comment on function public.intake_prove_sold(uuid, int) is
    'Sold slots by id, in pages. I2: read these first; the ledger must then have each as a ticket.';
revoke all on function public.intake_prove_sold(uuid, int) from public;
grant execute on function public.intake_prove_sold(uuid, int)
    to penstock_operator, penstock_readonly, penstock_auditor;
