-- A name that is no UUID is no tenant of anybody, and must not make every claim fail.
create or replace function app.outbox_paused_tenants() returns uuid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_names text[] := penstock.paused('tenant');
begin
    if cardinality(v_names) = 0 then
        return '{}';
    end if;
    return array(
        select t.name::uuid from unnest(v_names) as t (name)
        where t.name ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$');
end
$$;

comment on function app.outbox_paused_tenants() is 'Tenants whose events no claim takes now.';
revoke all on function app.outbox_paused_tenants() from public;
