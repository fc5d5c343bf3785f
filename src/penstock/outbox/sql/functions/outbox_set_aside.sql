-- Every claim walks the ready rows from the watermark on, whatever their topic, and the lowest of them
-- holds the watermark down. So what a destination cannot take soon is set aside: all of it while the
-- destination is shut, else (once there is twice as much) what goes beyond p_keep. It waits without a time of its own, at the end of
-- all time, until outbox_refill fetches it.
create or replace function app.outbox_set_aside(p_keep integer default 2000) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    v_wm bigint := pg_sequence_last_value('penstock.outbox_wm');
    v_now timestamptz := penstock.clock();
    v_paused text[] := penstock.paused('destination');
    v_tids tid[];
begin
    v_tids := array(
        select x.tid
        from public.outbox_routes r
        join public.outbox_destinations d on d.name = r.destination and d.kind <> 'python'
        cross join lateral (
            select case when d.enabled and r.enabled and d.name <> all (v_paused)
                             and (d.breaker = 'closed' or d.breaker_until <= v_now)
                   then p_keep else 0 end as rows
        ) keep
        cross join lateral (
            select o.pos from public.outbox o
            where (o.topic, o.pos) > (r.route, v_wm)
              and (o.topic, o.pos) < (r.route, 9223372036854775807)
              and o.pos is not null and o.route is not null
            order by o.topic, o.pos offset 2 * keep.rows limit 1
        ) many
        cross join lateral (
            select o.pos from public.outbox o
            where (o.topic, o.pos) > (r.route, v_wm) and (o.topic, o.pos) <= (r.route, many.pos)
              and o.pos is not null and o.route is not null
            order by o.topic, o.pos offset keep.rows limit 1
        ) beyond
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where (o.topic, o.pos) >= (r.route, beyond.pos)
              and (o.topic, o.pos) < (r.route, 9223372036854775807)
              and o.pos is not null and o.route is not null
            order by o.topic, o.pos limit 5000
            for update skip locked
        ) x);
    update public.outbox o
    set pos = null, next_attempt_at = '9999-12-31 00:00:00+00'
    where o.ctid = any (v_tids);
    return cardinality(v_tids);
end
$$;

comment on function app.outbox_set_aside(integer) is
    'Take ready deliveries out of the way of all claims that their destination cannot take soon.';
revoke all on function app.outbox_set_aside(integer) from public;
