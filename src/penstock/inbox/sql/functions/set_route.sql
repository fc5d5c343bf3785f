-- A route is named by its source and pattern; the name of a source holds no slash.
create or replace function webhook.set_route(
    p_name text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_source text := split_part(p_name, '/', 1);
    v_pattern text := substr(p_name, length(split_part(p_name, '/', 1)) + 2);
    v_all jsonb;
    v_audit_id uuid;
begin
    if v_pattern = '' then
        raise exception using errcode = 'PN005',
            message = format('a route is named SOURCE/PATTERN, not %L', p_name);
    end if;
    -- What is not named keeps its value.
    select coalesce(to_jsonb(r), '{}') || p_values
    into v_all
    from (select) one
    left join public.webhook_routes r on r.source = v_source and r.pattern = v_pattern;
    if v_all ->> 'kind' is null or v_all ->> 'target' is null then
        raise exception using
            errcode = 'PN005', message = format('the new route %L needs a kind and a target', p_name);
    end if;
    v_audit_id := webhook.put_route(
        v_source, v_pattern, v_all ->> 'kind', v_all ->> 'target', v_all ->> 'secret_ref',
        p_reason, p_operator, coalesce((v_all ->> 'enabled')::boolean, true));
    return v_audit_id;
end
$$;

comment on function webhook.set_route(text, jsonb, text, text) is
    'Set fields of the route SOURCE/PATTERN: kind, target, secret_ref, enabled; audited.';
revoke all on function webhook.set_route(text, jsonb, text, text) from public;
grant execute on function webhook.set_route(text, jsonb, text, text) to penstock_control;
