create or replace function app.outbox_key_hash(p_tenant uuid, p_key text, p_route text default null)
returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select hashtextextended(concat_ws(E'\x1f', p_key, p_route),
        coalesce(uuid_hash_extended(p_tenant, 0), 0))
$$;

comment on function app.outbox_key_hash(uuid, text, text) is
    'The number of an ordering key''s line and of its lock; neither tenants nor routes share lines.';
revoke all on function app.outbox_key_hash(uuid, text, text) from public;
