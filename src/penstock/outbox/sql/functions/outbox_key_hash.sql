create or replace function app.outbox_key_hash(p_tenant uuid, p_key text) returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select hashtextextended(p_key, coalesce(uuid_hash_extended(p_tenant, 0), 0))
$$;

comment on function app.outbox_key_hash(uuid, text) is
    'The number of an ordering key''s line and of its lock; tenants do not share lines.';
revoke all on function app.outbox_key_hash(uuid, text) from public;
