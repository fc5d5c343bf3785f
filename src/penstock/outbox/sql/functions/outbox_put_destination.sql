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
    if p_kind = 'python' then
        raise exception using
            errcode = 'PN005', message = 'destinations in Python are made by registering a handler';
    end if;
    if exists (select from jsonb_object_keys(coalesce(p_values -> 'config', '{}')) as k
               where k ~* '(secret|passw|token|api_?key|private_?key|authorization|credential)') then
        raise exception using
            errcode = 'PN005',
            message = 'a destination''s configuration holds no secrets',
            hint    = 'name them in secret_refs; the worker looks them up';
    end if;
    insert into public.outbox_destinations (name, kind) values (p_name, p_kind)
    on conflict (name) do nothing;
    select * into v_row from public.outbox_destinations d where d.name = p_name for update;
    v_before := to_jsonb(v_row);
    v_row := jsonb_populate_record(v_row, coalesce(p_values, '{}')
        - array['name', 'kind', 'created_at', 'breaker', 'breaker_failures', 'breaker_opened_at',
                'breaker_until']);
    update public.outbox_destinations d
    set kind = p_kind, config = v_row.config, secret_refs = v_row.secret_refs,
        concurrency = v_row.concurrency, rate_per_s = v_row.rate_per_s, enabled = v_row.enabled
    where d.name = p_name;
    return audit.record('apply', 'public.outbox_destinations',
        jsonb_build_object('name', p_name, 'before', v_before, 'after', to_jsonb(v_row)),
        p_reason, p_operator);
end
$$;

comment on function app.outbox_put_destination(text, text, jsonb, text, text) is
    'Configure a destination: config, secret_refs, concurrency, rate_per_s, enabled; audited.';
revoke all on function app.outbox_put_destination(text, text, jsonb, text, text) from public;
grant execute on function app.outbox_put_destination(text, text, jsonb, text, text)
    to penstock_control;
