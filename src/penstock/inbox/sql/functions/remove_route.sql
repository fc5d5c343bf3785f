-- Events that waited for this route go on waiting, for a handler or for another route.
create or replace function webhook.remove_route(
    p_source text, p_pattern text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from public.webhook_routes r where r.source = p_source and r.pattern = p_pattern;
    if not found then
        raise exception using errcode = 'PN011',
            message = format('source %L has no route for %L', p_source, p_pattern);
    end if;
    return audit.record('remove_route', 'public.webhook_routes',
        jsonb_build_object('source', p_source, 'pattern', p_pattern), p_reason, p_operator);
end
$$;

comment on function webhook.remove_route(text, text, text, text) is
    'Take a route away; its events wait for another taker; audited.';
revoke all on function webhook.remove_route(text, text, text, text) from public;
grant execute on function webhook.remove_route(text, text, text, text)
    to penstock_operator, penstock_control;
