-- What each request of a batch is: `again` (this request already has its slot), `copy` (the same
-- request stands earlier in the batch), `limit_reached`, or `fresh`. Where the pool has a limit, a
-- fresh one is told the number that its slot will have among the user's slots. Lowest unused
-- numbers make the unique index an arbiter: no more than max_per_user numbers exist. The probes are
-- LATERAL with a LIMIT, so that they stay one index look-up per user whatever the statistics say.
create or replace function penstock_intake.sort_requests(
    p_pool_id text, p_user_ids text[], p_request_ids text[], p_max int
) returns table (ordinal int, kind text, nth bigint, resource_id uuid, reservation_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    with probed as (
        select w.o, w.u, w.r, a.id, a.reservation_id, h.nths,
               coalesce(cardinality(h.nths), 0) as held,
               row_number() over (partition by w.u, w.r order by w.o) as copy
        from (select x.u collate "C" as u, x.r collate "C" as r, x.o
              from unnest(p_user_ids, p_request_ids) with ordinality as x (u, r, o)) w
        left join lateral (
            select s.id, s.reservation_id from public.inventory_slots s
            where s.pool_id = p_pool_id and s.locked_by = w.u and s.request_id = w.r
            limit 1
        ) a on true
        left join lateral (
            select array_agg(x.user_nth) as nths
            from (select s.user_nth from public.inventory_slots s
                  where s.pool_id = p_pool_id and s.locked_by = w.u and s.user_nth is not null
                  limit 1000) x
        ) h on p_max is not null
    ), counted as (
        select p.*, p.id is null and (p.r is null or p.copy = 1) as is_new,
               row_number() over (
                   partition by p.u, p.id is null and (p.r is null or p.copy = 1) order by p.o) as k
        from probed p
    )
    select c.o::int,
           case when c.id is not null then 'again'
                when not c.is_new then 'copy'
                when c.held + c.k > p_max then 'limit_reached'
                else 'fresh' end,
           case when p_max is null then null
                when c.held = 0 then c.k
                else (select n from generate_series(1, c.held + c.k) as n
                      where n <> all (c.nths) order by n offset c.k - 1 limit 1) end,
           c.id, c.reservation_id
    from counted c
    order by c.o
$$;

comment on function penstock_intake.sort_requests(text, text[], text[], int) is
    'Tell new requests of a batch from repeated ones and from those over the limit.';
revoke all on function penstock_intake.sort_requests(text, text[], text[], int) from public;
