create or replace function penstock_ledger.classify(
    p_ids uuid[], p_reservations uuid[], p_pools text[], p_users text[], p_done uuid[]
) returns table (ordinal int, resource_id uuid, reservation_id uuid, outcome text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select a.n::int, a.id, a.reservation_id,
           case when num_nulls(a.id, a.pool, a.usr) > 0 then 'invalid'
                when o.outcome = 'CANCELLED' then 'cancelled'
                when t.resource_id is null then 'conflict'
                when coalesce(t.reservation_id <> a.reservation_id, t.user_id <> a.usr)
                    then 'conflict'
                when a.id = any (p_done) and row_number() over (partition by a.id order by a.n) = 1
                    then 'confirmed'
                else 'already' end
    from unnest(p_ids, p_reservations, p_pools, p_users) with ordinality
        as a (id, reservation_id, pool, usr, n)
    left join public.reservation_outcomes o on o.reservation_id = a.reservation_id
    left join public.confirmed_tickets t on t.resource_id = a.id
    order by a.n
$$;

comment on function penstock_ledger.classify(uuid[], uuid[], text[], text[], uuid[]) is
    'What came of each payload of a batch, read back from the tables.';
revoke all on function penstock_ledger.classify(uuid[], uuid[], text[], text[], uuid[]) from public;
