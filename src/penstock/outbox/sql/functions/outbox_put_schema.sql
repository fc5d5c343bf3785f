-- A producer may only add optional fields to what is kept: workers go by it.
create or replace function app.outbox_put_schema(
    p_topic text, p_version integer, p_schema jsonb, p_replace boolean default false
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_known jsonb;
begin
    insert into public.outbox_schemas (topic, version, schema)
    values (p_topic, p_version, p_schema)
    on conflict (topic, version) do nothing;
    if p_replace then
        update public.outbox_schemas s set schema = p_schema, changed_at = penstock.clock()
        where s.topic = p_topic and s.version = p_version and s.schema <> p_schema
          and (penstock.may_run('outbox') or app.outbox_schema_adds(s.schema, p_schema));
    end if;
    select s.schema into v_known from public.outbox_schemas s
    where s.topic = p_topic and s.version = p_version;
    return v_known;
end
$$;

comment on function app.outbox_put_schema(text, integer, jsonb, boolean) is
    'Keep the JSON Schema of a topic''s version if it is new, or replace it; returns the kept one.';
revoke all on function app.outbox_put_schema(text, integer, jsonb, boolean) from public;
grant execute on function app.outbox_put_schema(text, integer, jsonb, boolean)
    to penstock_outbox_ingest, penstock_outbox_executor;
