-- The new secret goes first; the one before it stays valid until the rotation is finished.
create or replace function webhook.rotate_source(
    p_source text, p_secret_ref text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_refs text[];
begin
    if p_secret_ref is not null and p_secret_ref !~ '^(env|file):.+' then
        raise exception using errcode = 'PN005',
            message = 'a secret is named by env:NAME or file:PATH, never written down here';
    end if;
    update public.webhook_endpoints w
    set secret_refs = case
            when p_secret_ref is null then w.secret_refs[1:1]
            else p_secret_ref || array_remove(w.secret_refs, p_secret_ref) end,
        rotated_at = penstock.clock()
    where w.source = p_source
    returning w.secret_refs into v_refs;
    if not found then
        raise exception using
            errcode = 'PN011', message = format('there is no source %L', p_source);
    end if;
    return audit.record('rotate_source', 'public.webhook_endpoints',
        jsonb_build_object('source', p_source, 'secret_refs', v_refs), p_reason, p_operator);
end
$$;

comment on function webhook.rotate_source(text, text, text, text) is
    'Put a new secret first, old ones still verify; null: keep only the first.';
revoke all on function webhook.rotate_source(text, text, text, text) from public;
grant execute on function webhook.rotate_source(text, text, text, text)
    to penstock_operator, penstock_control;
