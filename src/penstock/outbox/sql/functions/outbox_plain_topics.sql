-- Topics that one handler in Python alone takes, whatever the payload: whoever serves that route claims
-- them without a further step, and the event itself is the item. What goes to a configured destination
-- always takes its route first: breaker, rate, pause and archive go by it.
create or replace function app.outbox_plain_topics()
returns table (topic text, route text, destination text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select r.topic, r.route, r.destination
    from public.outbox_routes r
    join public.outbox_destinations d on d.name = r.destination and d.kind = 'python'
    where r.enabled and r.filter is null and position('*' in r.topic) = 0
      and not exists (
            select from public.outbox_routes s
            where s.enabled and s.route <> r.route and app.outbox_matches(s.topic, r.topic))
$$;

comment on function app.outbox_plain_topics() is 'Topics with exactly one route, to Python, and no filter.';
revoke all on function app.outbox_plain_topics() from public;
grant execute on function app.outbox_plain_topics() to penstock_outbox_executor;
