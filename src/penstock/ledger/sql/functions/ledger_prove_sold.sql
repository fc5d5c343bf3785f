create or replace function public.ledger_prove_sold(
    p_resource_ids uuid[], p_user_ids text[], p_reservation_ids uuid[]
) returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select 'I2', 'slot ' || s.id,
           case when t.resource_id is null then 'sold in the engine, without a ticket'
                else 'sold in the engine, but the ticket is another''s' end
    from unnest(p_resource_ids, p_user_ids, p_reservation_ids) as s (id, user_id, reservation_id)
    left join public.confirmed_tickets t on t.resource_id = s.id
    where t.resource_id is null or t.user_id <> s.user_id or t.reservation_id <> s.reservation_id
$$;

comment on function public.ledger_prove_sold(uuid[], text[], uuid[]) is
    'Sold slots of the engine that the ledger does not confirm (I2); no rows means that it holds.';
revoke all on function public.ledger_prove_sold(uuid[], text[], uuid[]) from public;
grant execute on function public.ledger_prove_sold(uuid[], text[], uuid[])
    to penstock_operator, penstock_readonly, penstock_auditor;
