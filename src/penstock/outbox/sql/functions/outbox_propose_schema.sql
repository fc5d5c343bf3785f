-- For whoever must not wait, nor be waited for: a producer that has only the transaction in which it
-- publishes, where the schema of a version comes with its first event, and a process that starts beside
-- it. What this transaction keeps may still be undone, so it is not known yet: null, and the next event
-- asks again. Whoever finds another at it does the same. The setting ends with the transaction, or with
-- the savepoint, as the row does. An older snapshot does not show what was kept since and fails on it: that
-- is not known either. A serializable one would fail later, at what is not ours.
create or replace function app.outbox_propose_schema(
    p_topic text, p_version integer, p_schema jsonb
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_hash bigint := hashtextextended(format('penstock.outbox_schema/%s/%s', p_version, p_topic), 0);
    v_mine text := coalesce(current_setting('penstock.outbox_proposed', true), '');
    v_known jsonb;
begin
    if v_hash::text = any (string_to_array(v_mine, ' ')) then
        return null;
    end if;
    v_known := (select s.schema from public.outbox_schemas s
                where s.topic = p_topic and s.version = p_version);
    if v_known is not null
       or current_setting('transaction_isolation') = 'serializable'
       or not pg_try_advisory_xact_lock(v_hash) then
        return v_known;
    end if;
    perform set_config('penstock.outbox_proposed', concat_ws(' ', v_mine, v_hash), true);
    return nullif(app.outbox_put_schema(p_topic, p_version, p_schema), p_schema);
exception when serialization_failure then
    return null;
end
$$;

comment on function app.outbox_propose_schema(text, integer, jsonb) is
    'The kept JSON Schema of a topic''s version; if there is none, this one is kept from now on: null.';
revoke all on function app.outbox_propose_schema(text, integer, jsonb) from public;
grant execute on function app.outbox_propose_schema(text, integer, jsonb)
    to penstock_outbox_ingest, penstock_outbox_executor;
