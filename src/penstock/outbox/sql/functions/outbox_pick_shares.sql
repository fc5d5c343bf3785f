-- The policy round_robin, for destinations: as outbox_pick_fair, with each route of a tenant as one turn.
-- The share that is left over here goes to the oldest of all, by outbox_pick_for.
create or replace function app.outbox_pick_shares(p_destinations text[], p_allowed integer[])
returns tid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_incremental_sort = off
as $$
declare
    v_wm bigint := app.outbox_mark();
    v_paused text[] := penstock.paused('topic');
    v_idle uuid[] := app.outbox_paused_tenants();
begin
    return array(
        select x.tid
        from unnest(p_destinations, p_allowed) as a (name, allowed)
        cross join lateral (
            select u.*, count(*) over () as turns
            from (select r.route, u.tenant_id
                  from public.outbox_routes r
                  cross join lateral unnest(
                      app.outbox_route_tenants(r.route, a.allowed, false)) as u (tenant_id)
                  where r.destination = a.name and r.enabled and u.tenant_id <> all (v_idle)
                  order by random() limit a.allowed) u
        ) t
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where (o.topic, o.tenant_id, o.pos) > (t.route, t.tenant_id, v_wm)
              and (o.topic, o.tenant_id, o.pos) < (t.route, t.tenant_id, 9223372036854775807)
              and o.pos is not null and o.route is not null and o.tenant_id is not null
              and o.event_topic <> all (v_paused)
            order by o.topic, o.tenant_id, o.pos
            limit greatest(a.allowed / (t.turns + 1), 1)
            for update skip locked
        ) x);
end
$$;

comment on function app.outbox_pick_shares(text[], integer[]) is
    'Lock ready deliveries of destinations, in equal shares of their tenants.';
revoke all on function app.outbox_pick_shares(text[], integer[]) from public;
