create or replace function app.outbox_set_route(
    p_route text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_topic text := p_values ->> 'topic';
    v_destination text := p_values ->> 'destination';
    v_filter text := p_values ->> 'filter';
    v_enabled boolean := (p_values ->> 'enabled')::boolean;
    v_audit_id uuid;
begin
    -- What is not named keeps its value.
    select coalesce(v_topic, r.topic), coalesce(v_destination, r.destination),
           case when p_values ? 'filter' then v_filter else coalesce(r.filter_text, r.filter::text) end,
           coalesce(v_enabled, r.enabled)
    into v_topic, v_destination, v_filter, v_enabled
    from (select) one left join public.outbox_routes r on r.route = p_route;
    if v_topic is null or v_destination is null then
        raise exception using
            errcode = 'PN005', message = format('the new route %L needs a topic and a destination', p_route);
    end if;
    v_audit_id := app.outbox_put_route(
        p_route, v_topic, v_destination, p_reason, nullif(v_filter, '')::jsonpath,
        coalesce(v_enabled, true), p_operator);
    update public.outbox_routes r set filter_text = nullif(v_filter, '') where r.route = p_route;
    return v_audit_id;
end
$$;

comment on function app.outbox_set_route(text, jsonb, text, text) is
    'Set fields of a route: topic, destination, filter, enabled; the others stay; audited.';
revoke all on function app.outbox_set_route(text, jsonb, text, text) from public;
grant execute on function app.outbox_set_route(text, jsonb, text, text) to penstock_control;
