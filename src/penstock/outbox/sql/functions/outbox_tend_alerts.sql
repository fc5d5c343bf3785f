-- For a route that came later, and a receiver that was away longer than an event has attempts: dead
-- alerts get a new cycle every quarter of an hour, for a week.
create or replace function app.outbox_tend_alerts() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := penstock.clock();
    v_count integer;
begin
    -- Before any event: alerts look at the routes, and whoever takes a route away locks those first.
    lock table public.outbox_routes in access share mode;
    perform app.outbox_send_alert(a.queue, a.topic, a.state, a.fingerprint)
    from (select a.queue, a.topic, a.state, a.fingerprint from public.outbox_alerts a
          where a.unsent > 0 order by 1, 2, 3, 4) a;
    delete from public.outbox_alerts a where a.last_at < v_now - interval '30 days';
    with again as materialized (
        select o.seq from public.outbox o
        where o.dead_at < v_now - interval '15 minutes' and o.dead_at > v_now - interval '7 days'
          and coalesce(o.event_topic, o.topic) = 'penstock.alert'
          and o.created_at > v_now - interval '7 days'
        order by o.seq limit 100
        for update skip locked
    )
    update public.outbox o
    set pos = nextval('penstock.outbox_next'), dead_at = null, attempts = 0,
        replay_count = o.replay_count + 1
    from again a where o.seq = a.seq;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_tend_alerts() is
    'Send alerts that had no route, and try dead alerts again; returns how many of those.';
revoke all on function app.outbox_tend_alerts() from public;
grant execute on function app.outbox_tend_alerts() to penstock_outbox_executor;
