create or replace function webhook.put_source(
    p_source text, p_provider text, p_secret_refs text[], p_settings jsonb,
    p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_id uuid;
    v_given jsonb := coalesce(p_settings, '{}');
begin
    if exists (select from unnest(p_secret_refs) as r (ref) where r.ref !~ '^(env|file):.+') then
        raise exception using errcode = 'PN005',
            message = 'a secret is named by env:NAME or file:PATH, never written down here';
    end if;
    insert into public.webhook_endpoints as w
        (source, provider, secret_refs, tolerance_s, max_body, max_backlog, timestamp_signed,
         public_url, unhandled, options)
    values (p_source, p_provider, coalesce(p_secret_refs, '{}'),
            coalesce((v_given ->> 'tolerance_s')::integer, 300),
            coalesce((v_given ->> 'max_body')::integer, 1048576),
            case when v_given ? 'max_backlog' then (v_given ->> 'max_backlog')::integer
                 else 100000 end,
            coalesce((v_given ->> 'timestamp_signed')::boolean, true),
            v_given ->> 'public_url', coalesce(v_given ->> 'unhandled', 'keep'),
            coalesce(v_given -> 'options', '{}'))
    on conflict (source) do update
        set provider = excluded.provider, secret_refs = excluded.secret_refs,
            tolerance_s = excluded.tolerance_s, max_body = excluded.max_body,
            max_backlog = excluded.max_backlog, timestamp_signed = excluded.timestamp_signed,
            public_url = excluded.public_url, unhandled = excluded.unhandled,
            options = excluded.options, enabled = true
    returning w.id into v_id;
    return query select v_id, audit.record('put_source', 'public.webhook_endpoints',
        jsonb_build_object('id', v_id, 'source', p_source, 'provider', p_provider,
                           'secret_refs', p_secret_refs, 'settings', v_given),
        p_reason, p_operator);
end
$$;

comment on function webhook.put_source(text, text, text[], jsonb, text, text) is
    'Add a source or replace its settings; its id stays.';
revoke all on function webhook.put_source(text, text, text[], jsonb, text, text) from public;
grant execute on function webhook.put_source(text, text, text[], jsonb, text, text)
    to penstock_operator, penstock_control;
