create or replace function app.outbox_put_destination(
    p_name text, p_kind text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row public.outbox_destinations;
begin
    p_kind := coalesce(p_kind, (select d.kind from public.outbox_destinations d where d.name = p_name));
    if p_kind is null then
        raise exception using
            errcode = 'PN011', message = format('there is no destination %L', p_name),
            hint    = 'a new one needs a kind';
    end if;
    if p_kind = 'python' then
        raise exception using
            errcode = 'PN005', message = 'destinations in Python are made by registering a handler';
    end if;
    if exists (
        select from jsonb_path_query(coalesce(p_values -> 'config', '{}'),
                                     '$.** ? (@.type() == "object")') as o (part),
                    jsonb_object_keys(o.part) as k (name)
        where k.name ~* '(secret|passw|token|api[_-]?key|private[_-]?key|authorization|credential|cookie)'
    ) then
        raise exception using
            errcode = 'PN005',
            message = 'a destination''s configuration holds no secrets',
            hint    = 'name them in secret_refs; the worker looks them up';
    end if;
    if jsonb_path_exists(coalesce(p_values -> 'config', '{}'),
                         '$.** ? (@.type() == "string" && @ like_regex "://[^/?#]*@")') then
        raise exception using
            errcode = 'PN005', message = 'an address in a configuration holds no user or password',
            hint    = 'name them in secret_refs; the worker looks them up';
    end if;
    insert into public.outbox_destinations (name, kind) values (p_name, p_kind)
    on conflict (name) do nothing;
    select * into v_row from public.outbox_destinations d where d.name = p_name for update;
    v_before := to_jsonb(v_row);
    v_row := jsonb_populate_record(v_row, coalesce(p_values, '{}')
        - array['name', 'kind', 'created_at']);
    perform app.outbox_check_references(v_row.secret_refs);
    if p_kind = 'sql' and not app.outbox_function_allowed(v_row.config ->> 'function') then
        raise exception using errcode = 'PN006',
            message = format('function %L is not among public.outbox_functions',
                             v_row.config ->> 'function'),
            detail  = 'a destination may name only functions that the owner has listed.',
            hint    = 'enter it there, as the owner of the schema, if events may be given to it';
    end if;
    -- Whoever changes a destination means to try it: breaker and rate start anew.
    update public.outbox_destinations d
    set version = d.version + 1, kind = p_kind, config = v_row.config, secret_refs = v_row.secret_refs,
        concurrency = v_row.concurrency, rate_per_s = v_row.rate_per_s, enabled = v_row.enabled,
        breaker_after = v_row.breaker_after, breaker_pause_s = v_row.breaker_pause_s,
        breaker = 'closed', breaker_failures = 0, breaker_opens = 0, breaker_opened_at = null,
        breaker_until = null, breaker_window_ok = 0, breaker_window_bad = 0,
        rate_left = null, rate_at = null, fault = null, fault_at = null
    where d.name = p_name
    returning d.* into v_row;
    return audit.record('apply', 'public.outbox_destinations',
        jsonb_build_object('name', p_name,
            'before', app.outbox_settings_of(v_before), 'after', app.outbox_settings_of(to_jsonb(v_row))),
        p_reason, p_operator);
end
$$;

comment on function app.outbox_put_destination(text, text, jsonb, text, text) is
    'Configure a destination (no kind: the one it has); what p_values leaves out stays; audited.';
revoke all on function app.outbox_put_destination(text, text, jsonb, text, text) from public;
grant execute on function app.outbox_put_destination(text, text, jsonb, text, text)
    to penstock_control;
