-- What one tenant has ready keeps a destination busy, and with it everything that is set aside. So at each
-- claim some tenants who have nothing ready get back as much as they may be given.
create or replace function app.outbox_refill_shares(p_destinations text[], p_allowed integer[])
returns void
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
    c_tenants constant integer := 50;
    v_idle uuid[] := app.outbox_paused_tenants();
    v_tids tid[];
begin
    v_tids := array(
        select x.tid
        from unnest(p_destinations, p_allowed) as a (name, allowed)
        join public.outbox_routes r on r.destination = a.name and r.enabled
        cross join lateral (
            select u.tenant_id, count(*) over () as turns
            from unnest(app.outbox_route_tenants(
                r.route, least(a.allowed, c_tenants), true)) as u (tenant_id)
            where u.tenant_id <> all (v_idle)
              and (select o.pos from public.outbox o
                   where (o.topic, o.tenant_id, o.pos) > (r.route, u.tenant_id, -1)
                     and (o.topic, o.tenant_id, o.pos) < (r.route, u.tenant_id, 9223372036854775807)
                     and o.pos is not null and o.route is not null and o.tenant_id is not null
                   order by o.topic, o.tenant_id, o.pos limit 1) is null
        ) t
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where (o.topic, o.tenant_id, o.seq) > (r.route, t.tenant_id, 0)
              and (o.topic, o.tenant_id, o.seq) < (r.route, t.tenant_id, 9223372036854775807)
              and o.next_attempt_at = '9999-12-31 00:00:00+00' and o.tenant_id is not null
            order by o.topic, o.tenant_id, o.seq
            limit greatest(a.allowed / (t.turns + 1), 1)
            for update skip locked
        ) x);
    perform app.outbox_bring_aside(v_tids);
end
$$;

comment on function app.outbox_refill_shares(text[], integer[]) is
    'Make some of what was set aside ready again, for tenants who have nothing ready.';
revoke all on function app.outbox_refill_shares(text[], integer[]) from public;
