-- One statement decides: of two that resolve the same new identity at once, both get one contact.
-- Whom an address belongs to is told to its own tenant only.
create or replace function app.resolve_identity(
    p_tenant uuid, p_type text, p_value text, p_contact uuid default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_value text := btrim(p_value);
    v_contact uuid;
begin
    p_tenant := app.own_tenant(p_tenant);
    if coalesce(p_type, '') not in ('external_id', 'email') then
        raise exception using
            errcode = 'PN005', message = 'identities to resolve are of type external_id or email';
    end if;
    loop
        select i.contact_id into v_contact from public.contact_identities i
        where i.tenant_id = p_tenant and i.type = p_type
          and case p_type when 'email' then lower(i.value) = lower(v_value)
                          else i.value = v_value end;
        if found then
            return v_contact;
        end if;
        insert into public.contact_identities (tenant_id, contact_id, type, value)
        values (p_tenant, coalesce(p_contact, penstock.uuidv7()), p_type, v_value)
        on conflict do nothing
        returning contact_id into v_contact;
        if found then
            return v_contact;
        end if;
    end loop;
end
$$;

comment on function app.resolve_identity(uuid, text, text, uuid) is
    'The contact that an external id or e-mail address means; enters it if it is new.';
revoke all on function app.resolve_identity(uuid, text, text, uuid) from public;
grant execute on function app.resolve_identity(uuid, text, text, uuid) to penstock_outbox_ingest;
