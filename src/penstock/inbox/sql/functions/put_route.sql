create or replace function webhook.put_route(
    p_source text, p_pattern text, p_kind text, p_target text, p_secret_ref text,
    p_reason text, p_operator text default null, p_enabled boolean default true
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_kind = 'sql' and not exists (
        select from webhook.route_functions f where f.name = p_target
    ) then
        raise exception using errcode = 'PN006',
            message = format('function %L is not among webhook.route_functions', p_target),
            detail  = 'a route may name only functions that the owner has listed.',
            hint    = 'the owner of the database adds it there first';
    end if;
    if p_kind = 'http' and p_target !~ '^https?://' then
        raise exception using errcode = 'PN005', message = 'an HTTP route needs a URL';
    end if;
    if p_secret_ref is not null and p_secret_ref !~ '^(env|file):.+' then
        raise exception using errcode = 'PN005',
            message = 'a secret is named by env:NAME or file:PATH, never written down here';
    end if;
    if not exists (select from public.webhook_endpoints w where w.source = p_source) then
        raise exception using
            errcode = 'PN011', message = format('there is no source %L', p_source);
    end if;
    insert into public.webhook_routes (source, pattern, kind, target, secret_ref, enabled)
    values (p_source, p_pattern, p_kind, p_target, p_secret_ref, p_enabled)
    on conflict (source, pattern) do update
        set kind = excluded.kind, target = excluded.target, secret_ref = excluded.secret_ref,
            enabled = excluded.enabled;
    return audit.record('put_route', 'public.webhook_routes',
        jsonb_build_object('source', p_source, 'pattern', p_pattern, 'kind', p_kind,
                           'target', p_target, 'enabled', p_enabled), p_reason, p_operator);
end
$$;

comment on function webhook.put_route(text, text, text, text, text, text, text, boolean) is
    'Send events of a source straight on: to an HTTP endpoint or to an allowed function.';
revoke all on function webhook.put_route(text, text, text, text, text, text, text, boolean)
    from public;
grant execute on function webhook.put_route(text, text, text, text, text, text, text, boolean)
    to penstock_operator, penstock_control;
