-- What an application handles in Python is a route like any other: python/TOPIC for the only handler of
-- a topic, python:HANDLER/TOPIC for each of several. It stays until an operator removes it, so that
-- nothing is lost while the application is down.
create or replace function app.outbox_register(
    p_routes text[], p_topics text[], p_destinations text[]
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from unnest(p_routes, p_topics, p_destinations) as h (route, topic, destination)
               where h.route <> h.destination || '/' || h.topic
                  or h.destination !~ '^python(:.+)?$') then
        raise exception using
            errcode = 'PN005', message = 'a handler''s route is called python:HANDLER/TOPIC';
    end if;
    insert into public.outbox_destinations (name, kind)
    select distinct h.destination, 'python' from unnest(p_destinations) as h (destination)
    order by 1
    on conflict (name) do nothing;
    insert into public.outbox_routes (route, topic, destination)
    select h.route, h.topic, h.destination
    from unnest(p_routes, p_topics, p_destinations) as h (route, topic, destination)
    order by 1
    on conflict (route) do nothing;
end
$$;

comment on function app.outbox_register(text[], text[], text[]) is
    'Enter the handlers of an application as routes, where they are not yet.';
revoke all on function app.outbox_register(text[], text[], text[]) from public;
grant execute on function app.outbox_register(text[], text[], text[]) to penstock_outbox_executor;
