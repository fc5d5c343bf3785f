-- The range over (topic, pos), and the order by both, leave one index that fits: with an equality the
-- planner may walk all ready rows in the order of pos instead.
create or replace function app.outbox_pick_for(
    p_destinations text[], p_allowed integer[], p_taken tid[] default '{}'
) returns tid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
declare
    v_wm bigint := app.outbox_mark();
    v_paused text[] := penstock.paused('topic');
    v_idle uuid[] := app.outbox_paused_tenants();
begin
    if cardinality(p_taken) > 0 then
        p_allowed := array(
            select a.allowed - (select count(*) from public.outbox o
                                join public.outbox_routes r on r.route = o.route
                                where o.ctid = any (p_taken) and r.destination = a.name)
            from unnest(p_destinations, p_allowed) as a (name, allowed));
    end if;
    return array(
        select x.tid
        from unnest(p_destinations, p_allowed) as a (name, allowed)
        cross join lateral (
            select y.tid
            from public.outbox_routes r
            cross join lateral (
                select o.ctid as tid, o.pos
                from public.outbox o
                where (o.topic, o.pos) > (r.route, v_wm)
                  and (o.topic, o.pos) < (r.route, 9223372036854775807)
                  and o.pos is not null and o.route is not null
                  and o.event_topic <> all (v_paused)
                  and coalesce(o.tenant_id <> all (v_idle), true) and o.ctid <> all (p_taken)
                order by o.topic, o.pos limit a.allowed
                for update skip locked
            ) y
            where r.destination = a.name and r.enabled
            order by y.pos limit a.allowed
        ) x);
end
$$;

comment on function app.outbox_pick_for(text[], integer[], tid[]) is
    'Lock ready deliveries of destinations, up to a number for each, beside those taken already.';
revoke all on function app.outbox_pick_for(text[], integer[], tid[]) from public;
