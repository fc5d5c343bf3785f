-- A session that says which tenant it acts for is bound to that tenant. Supabase's claims are set from
-- the verified token; `penstock.tenant` is for applications that hold one login for all tenants. It
-- sets no search_path, so that it is inlined where it is a column's default: all names are qualified.
create or replace function app.current_tenant() returns uuid
language sql stable
as $$
    select coalesce(
        nullif(pg_catalog.current_setting('penstock.tenant', true), ''),
        pg_catalog.jsonb_extract_path_text(
            nullif(pg_catalog.current_setting('request.jwt.claims', true), '')::pg_catalog.jsonb,
            'app_metadata', 'tenant_id'),
        pg_catalog.jsonb_extract_path_text(
            nullif(pg_catalog.current_setting('request.jwt.claims', true), '')::pg_catalog.jsonb,
            'tenant_id'))::pg_catalog.uuid
$$;

comment on function app.current_tenant() is
    'The tenant that this session is bound to; null for a service that acts for all.';
revoke all on function app.current_tenant() from public;
grant execute on function app.current_tenant() to penstock_outbox_ingest, penstock_outbox_executor;
