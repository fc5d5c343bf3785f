create or replace function app.outbox_routes_of(p_topic text, p_payload jsonb)
returns table (route text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select r.route
    from public.outbox_routes r
    where r.enabled and app.outbox_matches(r.topic, p_topic)
      and (r.filter is null or coalesce(p_payload @@ r.filter, false))
$$;

comment on function app.outbox_routes_of(text, jsonb) is 'The routes that an event takes.';
revoke all on function app.outbox_routes_of(text, jsonb) from public;
