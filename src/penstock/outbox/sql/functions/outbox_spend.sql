create or replace function app.outbox_spend(p_tids tid[], p_lease_s integer) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
begin
    update public.outbox_destinations d
    set rate_left = case when d.rate_per_s is not null then
            app.outbox_rate_left(d.rate_per_s, d.rate_left, d.rate_at, v_now) - t.taken end,
        rate_at = v_now,
        breaker = case when d.breaker = 'closed' then 'closed' else 'half_open' end,
        breaker_until = case when d.breaker <> 'closed' then
            v_now + make_interval(secs => p_lease_s) end
    from (
        select r.destination, count(*) as taken
        from public.outbox o
        join public.outbox_routes r on r.route = o.route
        where o.ctid = any (p_tids)
        group by r.destination
    ) t
    where d.name = t.destination
      and (d.rate_per_s is not null or (d.breaker <> 'closed' and d.breaker_until <= v_now));
end
$$;

comment on function app.outbox_spend(tid[], integer) is
    'Book what is being claimed: against the rate, or as the one delivery that tries an open breaker.';
revoke all on function app.outbox_spend(tid[], integer) from public;
