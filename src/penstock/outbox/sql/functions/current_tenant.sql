-- A session that says which tenant it acts for is bound to that tenant. Supabase's claims are set from
-- the verified token; `penstock.tenant` is for applications that hold one login for all tenants.
create or replace function app.current_tenant() returns uuid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        nullif(current_setting('penstock.tenant', true), ''),
        nullif(current_setting('request.jwt.claims', true), '')::jsonb #>> '{app_metadata,tenant_id}',
        nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'tenant_id')::uuid
$$;

comment on function app.current_tenant() is
    'The tenant that this session is bound to; null for a service that acts for all.';
revoke all on function app.current_tenant() from public;
grant execute on function app.current_tenant() to penstock_outbox_ingest, penstock_outbox_executor;
