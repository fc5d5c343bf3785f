-- A few statements for a whole batch, no exception per item. First the outcome of each reservation
-- is decided, then its ticket is written. Both tables are written in order of key, so that two
-- batches wait for each other in one order; each statement sees what the one before it waited for.
create or replace function public.finalize_many(p_payloads jsonb[])
returns table (ordinal int, resource_id uuid, reservation_id uuid, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_ids uuid[]; v_reservations uuid[]; v_pools text[]; v_users text[]; v_done uuid[];
    v_now timestamptz := penstock.clock();
begin
    select array_agg(penstock_ledger.as_uuid(p.doc ->> 'resource_id') order by p.n),
           array_agg(penstock_ledger.as_uuid(p.doc ->> 'reservation_id') order by p.n),
           array_agg(nullif(p.doc ->> 'pool_id', '') order by p.n),
           array_agg(nullif(p.doc ->> 'user_id', '') order by p.n)
    into v_ids, v_reservations, v_pools, v_users
    from unnest(p_payloads) with ordinality as p (doc, n);
    insert into public.reservation_outcomes (reservation_id, resource_id, outcome, at)
    select a.reservation_id, a.id, 'CONFIRMED', v_now
    from unnest(v_ids, v_reservations, v_pools, v_users) as a (id, reservation_id, pool, usr)
    where num_nulls(a.id, a.reservation_id, a.pool, a.usr) = 0
    order by a.reservation_id
    on conflict do nothing;
    with written as (
        insert into public.confirmed_tickets as t
            (resource_id, pool_id, user_id, confirmed_at, reservation_id)
        select a.id, a.pool, a.usr, v_now, a.reservation_id
        from unnest(v_ids, v_reservations, v_pools, v_users) as a (id, reservation_id, pool, usr)
        where num_nulls(a.id, a.pool, a.usr) = 0
          and (a.reservation_id is null or exists (
              select from public.reservation_outcomes o
              where o.reservation_id = a.reservation_id and o.outcome = 'CONFIRMED'
                and o.resource_id = a.id))
        order by a.id
        on conflict do nothing
        returning t.resource_id
    )
    select coalesce(array_agg(w.resource_id), '{}') into v_done from written w;
    if cardinality(v_done) = cardinality(p_payloads) then
        return query
            select a.n::int, a.id, a.reservation_id, 'confirmed'
            from unnest(v_ids, v_reservations) with ordinality as a (id, reservation_id, n);
        return;
    end if;
    return query select * from penstock_ledger.classify(
        v_ids, v_reservations, v_pools, v_users, v_done);
    -- A reservation that lost its resource to another has no outcome of its own.
    delete from public.reservation_outcomes o
    where o.reservation_id = any (v_reservations) and o.outcome = 'CONFIRMED'
      and not exists (select from public.confirmed_tickets t
                      where t.reservation_id = o.reservation_id
                         or (t.resource_id = o.resource_id and t.reservation_id is null));
end
$$;

comment on function public.finalize_many(jsonb[]) is
    'Confirm many reservations. Outcome per payload: confirmed, already (same owner), conflict '
    '(the resource is another''s), cancelled, or invalid (a field is missing).';
revoke all on function public.finalize_many(jsonb[]) from public;
grant execute on function public.finalize_many(jsonb[]) to penstock_ledger_writer, service_role;
