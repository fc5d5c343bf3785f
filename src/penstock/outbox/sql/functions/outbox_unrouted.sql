-- The routes of handlers are entered when a worker starts, so with one running this names what nobody
-- will ever take. Where a route to a destination exists such events are archived as NO_ROUTE instead.
create or replace function app.outbox_unrouted()
returns table (topic text, ready bigint, oldest_age_s double precision)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select t.topic, t.ready,
           extract(epoch from penstock.clock() - t.oldest)::double precision
    from (select o.topic, count(*) as ready, min(o.created_at) as oldest
          from public.outbox o
          where o.pos is not null and o.route is null and not (select app.outbox_joint()) @> o.seq
          group by o.topic) t
    where not exists (
            select from public.outbox_routes r
            where r.enabled and app.outbox_matches(r.topic, t.topic))
    order by 1
$$;

comment on function app.outbox_unrouted() is
    'Topics with ready events that no enabled route takes, neither to a handler nor to a destination.';
revoke all on function app.outbox_unrouted() from public;
grant execute on function app.outbox_unrouted()
    to penstock_operator, penstock_readonly, penstock_auditor, penstock_control;
