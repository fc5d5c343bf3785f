-- What each request of a batch is: `again` (this request already has its slot), `copy` (the same
-- request stands earlier in the batch), `limit_reached`, or `fresh` with the number its slot will
-- have among the user's slots. Lowest unused numbers make the unique index an arbiter: at most
-- max_per_user numbers exist. The probe is LATERAL with a LIMIT, so it stays one index look-up per
-- user whatever the statistics say; users with a thousand slots are asked for once more.
create or replace function penstock_intake.sort_requests(
    p_pool_id text, p_user_ids text[], p_request_ids text[], p_max int
) returns table (ordinal int, kind text, nth bigint, resource_id uuid, reservation_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
    with probed as (
        select w.o, w.u, w.r, h.held, h.nths, coalesce(h.id, old.id) as id,
               coalesce(h.reservation, old.reservation_id) as reservation,
               row_number() over (partition by w.u, w.r order by w.o) as copy
        from unnest(p_user_ids, p_request_ids) with ordinality as w (u, r, o)
        cross join lateral (
            select count(*) as held, array_agg(x.user_nth) as nths,
                   (array_agg(x.id) filter (where x.request_id = w.r))[1] as id,
                   (array_agg(x.reservation_id) filter (where x.request_id = w.r))[1] as reservation
            from (
                select s.id, s.reservation_id, s.request_id, s.user_nth
                from public.inventory_slots s
                where s.pool_id = p_pool_id and s.locked_by = w.u
                order by s.user_nth desc
                limit 1000
            ) x
        ) h
        left join lateral (
            select s.id, s.reservation_id from public.inventory_slots s
            where h.held = 1000 and s.pool_id = p_pool_id and s.locked_by = w.u
              and s.request_id = w.r
            limit 1
        ) old on true
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
           case when c.held = 0 then c.k
                when p_max is null then c.nths[1] + c.k
                else (select n from generate_series(1, c.held + c.k) as n
                      where n <> all (c.nths) order by n offset c.k - 1 limit 1) end,
           c.id, c.reservation
    from counted c
    order by c.o
$$;

comment on function penstock_intake.sort_requests(text, text[], text[], int) is
    'Tell new requests of a batch from repeated ones and from those over the limit.';
revoke all on function penstock_intake.sort_requests(text, text[], text[], int) from public;
