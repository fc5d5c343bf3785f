-- For a producer that has only the transaction in which it publishes: the schema of a version comes with
-- its first event. That may still be undone, so the next event asks again. Whoever finds another at it
-- does the same and waits for nothing. An older snapshot would not show what was kept since, and fail on it.
create or replace function app.outbox_propose_schema(
    p_topic text, p_version integer, p_schema jsonb
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_known jsonb := (select s.schema from public.outbox_schemas s
                      where s.topic = p_topic and s.version = p_version);
begin
    if v_known is not null
       or current_setting('transaction_isolation') <> 'read committed'
       or not pg_try_advisory_xact_lock(
            hashtextextended(format('penstock.outbox_schema/%s/%s', p_version, p_topic), 0)) then
        return v_known;
    end if;
    return nullif(app.outbox_put_schema(p_topic, p_version, p_schema), p_schema);
end
$$;

comment on function app.outbox_propose_schema(text, integer, jsonb) is
    'The kept JSON Schema of a topic''s version; if there is none, this one is kept from now on: null.';
revoke all on function app.outbox_propose_schema(text, integer, jsonb) from public;
grant execute on function app.outbox_propose_schema(text, integer, jsonb)
    to penstock_outbox_ingest, penstock_outbox_executor;
