-- A pool without a config row sells (config may come later); an inactive or closed one does not.
create or replace function penstock_intake.pool_policy(p_pool_id text)
returns table (is_open boolean, max_per_user int, hold_s int, watermark regclass)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(c.is_active, true)
           and coalesce(p.opens_at <= penstock.clock(), true)
           and coalesce(p.closes_at > penstock.clock(), true),
           p.max_per_user, p.hold_s, m.watermark
    from (select) as one
    left join public.engine_config c on c.pool_id = p_pool_id
    left join public.intake_pools p on p.pool_id = p_pool_id
    left join penstock_intake.pool_mark m on m.pool_id = p_pool_id
$$;

comment on function penstock_intake.pool_policy(text) is 'What a claim must know of its pool.';
revoke all on function penstock_intake.pool_policy(text) from public;
