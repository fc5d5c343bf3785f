create or replace function app.outbox_refill(p_destinations text[], p_allowed integer[])
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
    return app.outbox_bring_aside(array(
        select x.tid
        from unnest(p_destinations, p_allowed) as a (name, allowed)
        join public.outbox_routes r on r.destination = a.name and r.enabled
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where (o.topic, o.seq) > (r.route, 0) and (o.topic, o.seq) < (r.route, 9223372036854775807)
              and o.next_attempt_at = '9999-12-31 00:00:00+00'
            order by o.topic, o.seq limit least(a.allowed * 10, 1000)
            for update skip locked
        ) x));
end
$$;

comment on function app.outbox_refill(text[], integer[]) is
    'Make some of what was set aside ready again, for destinations that can take it.';
revoke all on function app.outbox_refill(text[], integer[]) from public;
