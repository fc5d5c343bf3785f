create or replace function app.outbox_put_route(
    p_route text, p_topic text, p_destination text, p_reason text,
    p_filter jsonpath default null, p_enabled boolean default true, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from public.outbox_destinations d where d.name = p_destination) then
        raise exception using
            errcode = 'PN011', message = format('there is no destination %L', p_destination);
    end if;
    insert into public.outbox_routes as r (route, topic, filter, destination, enabled)
    values (p_route, p_topic, p_filter, p_destination, p_enabled)
    on conflict (route) do update
        set topic = excluded.topic, filter = excluded.filter, destination = excluded.destination,
            enabled = excluded.enabled, filter_text = null;
    return audit.record('apply', 'public.outbox_routes',
        jsonb_build_object('route', p_route, 'topic', p_topic, 'filter', p_filter::text,
                           'destination', p_destination, 'enabled', p_enabled),
        p_reason, p_operator);
end
$$;

comment on function app.outbox_put_route(text, text, text, text, jsonpath, boolean, text) is
    'Send events of a topic, or of a pattern of topics, to a destination; audited.';
revoke all on function app.outbox_put_route(text, text, text, text, jsonpath, boolean, text)
    from public;
grant execute on function app.outbox_put_route(text, text, text, text, jsonpath, boolean, text)
    to penstock_control;
