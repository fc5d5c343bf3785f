-- The order leaves one index that fits, in which the tenants of a route follow each other; by another the
-- planner would read the route up to there.
-- Tenants after p_from, up to p_to; from the first on, be it the nil UUID, where p_from is null.
create or replace function app.outbox_walk_tenants(
    p_route text, p_from uuid, p_to uuid, p_limit integer, p_aside boolean
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_sort = off
set enable_incremental_sort = off
as $$
declare
    c_nil constant uuid := '00000000-0000-0000-0000-000000000000';
    c_all constant bigint := 9223372036854775807;
    v_past bigint := case when p_from is null then -1 else c_all end;
begin
    if p_aside then
        return array(
            with recursive walk as (
                select coalesce(p_from, c_nil) as tenant_id, v_past as past, 0 as n
                union all
                select x.tenant_id, c_all, w.n + 1 from walk w
                cross join lateral (
                    select o.tenant_id from public.outbox o
                    where (o.topic, o.tenant_id, o.seq) > (p_route, w.tenant_id, w.past)
                      and (o.topic, o.tenant_id) <= (p_route, p_to)
                      and o.next_attempt_at = '9999-12-31 00:00:00+00' and o.tenant_id is not null
                    order by o.topic, o.tenant_id limit 1) x
                where w.n < p_limit
            )
            select w.tenant_id from walk w where w.n > 0);
    end if;
    return array(
        with recursive walk as (
            select coalesce(p_from, c_nil) as tenant_id, v_past as past, 0 as n
            union all
            select x.tenant_id, c_all, w.n + 1 from walk w
            cross join lateral (
                select o.tenant_id from public.outbox o
                where (o.topic, o.tenant_id, o.pos) > (p_route, w.tenant_id, w.past)
                  and (o.topic, o.tenant_id) <= (p_route, p_to)
                  and o.pos is not null and o.route is not null and o.tenant_id is not null
                order by o.topic, o.tenant_id limit 1) x
            where w.n < p_limit
        )
        select w.tenant_id from walk w where w.n > 0);
end
$$;

comment on function app.outbox_walk_tenants(text, uuid, uuid, integer, boolean) is
    'Tenants with deliveries of a route that are ready, or set aside; one probe each.';
revoke all on function app.outbox_walk_tenants(text, uuid, uuid, integer, boolean) from public;
