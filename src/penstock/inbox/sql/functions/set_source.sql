create or replace function webhook.set_source(
    p_source text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_all jsonb;
    v_audit_id uuid;
begin
    -- What is not named keeps its value.
    select coalesce(to_jsonb(w) - array['id', 'created_at', 'rotated_at'], '{}') || p_values
    into v_all
    from (select) one left join public.webhook_endpoints w on w.source = p_source;
    if v_all ->> 'provider' is null then
        raise exception using
            errcode = 'PN005', message = format('the new source %L needs a provider', p_source);
    end if;
    select p.audit_id into v_audit_id
    from webhook.put_source(
        p_source, v_all ->> 'provider',
        array(select jsonb_array_elements_text(coalesce(v_all -> 'secret_refs', '[]'))),
        v_all - array['source', 'provider', 'secret_refs'], p_reason, p_operator) p;
    update public.webhook_endpoints w
    set enabled = coalesce((v_all ->> 'enabled')::boolean, true)
    where w.source = p_source;
    return v_audit_id;
end
$$;

comment on function webhook.set_source(text, jsonb, text, text) is
    'Set fields of a source, by the names of its columns; the others stay; audited.';
revoke all on function webhook.set_source(text, jsonb, text, text) from public;
grant execute on function webhook.set_source(text, jsonb, text, text) to penstock_control;
