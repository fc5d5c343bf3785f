create or replace function app.outbox_publish_many(
    p_ids uuid[], p_topic text, p_payloads text[], p_headers jsonb default '{}'
) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant uuid := app.own_tenant(null);
    v_count integer;
begin
    insert into public.outbox (id, tenant_id, topic, payload, headers)
    select e.id, v_tenant, p_topic, e.payload::jsonb, coalesce(p_headers, '{}')
    from unnest(p_ids, p_payloads) with ordinality as e (id, payload, ord)
    order by e.ord;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_publish_many(uuid[], text, text[], jsonb) is
    'Publish many events of one topic in one statement, in the caller''s transaction.';
revoke all on function app.outbox_publish_many(uuid[], text, text[], jsonb) from public;
grant execute on function app.outbox_publish_many(uuid[], text, text[], jsonb)
    to penstock_outbox_ingest;
