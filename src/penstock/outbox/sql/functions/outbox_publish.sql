create or replace function app.outbox_publish(
    p_id           uuid,
    p_topic        text,
    p_payload      jsonb,
    p_headers      jsonb default '{}',
    p_tenant       uuid default null,
    p_deliver_at   timestamptz default null,
    p_ordering_key text default null,
    p_dedupe_key   text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_later boolean := coalesce(p_deliver_at > penstock.clock(), false);
    v_known uuid;
begin
    p_id := coalesce(p_id, penstock.uuidv7());
    p_tenant := app.own_tenant(p_tenant);
    -- Asked only where it will be refused: a call takes as long as everything else here.
    if p_topic is null or length(p_topic) not between 1 and 200 or p_topic like 'penstock.%' then
        perform app.outbox_check_topic(p_topic);
    end if;
    if p_payload is null or pg_column_size(p_payload) > 1048576 then
        raise exception using
            errcode = 'PN401',
            message = 'a payload is required and has at most 1 MiB',
            hint    = 'publish a reference to a large body, not the body';
    end if;
    if length(p_ordering_key) not between 1 and 200 then
        raise exception using errcode = 'PN401', message = 'an ordering key has 1 to 200 characters';
    end if;
    if p_dedupe_key is not null then
        v_known := app.outbox_remember(p_id, p_topic, p_tenant, p_dedupe_key, p_payload);
        if v_known is not null then
            return v_known;
        end if;
    end if;
    insert into public.outbox
        (id, tenant_id, topic, payload, headers, ordering_key, pos, next_attempt_at)
    values (p_id, p_tenant, p_topic, p_payload,
            coalesce(p_headers, '{}'), p_ordering_key,
            case when not v_later then nextval('penstock.outbox_next') end,
            case when v_later then p_deliver_at end);
    return p_id;
end
$$;

comment on function app.outbox_publish(
    uuid, text, jsonb, jsonb, uuid, timestamptz, text, text) is
    'Publish an event in the caller''s transaction; it exists exactly if that commits.';
revoke all on function app.outbox_publish(
    uuid, text, jsonb, jsonb, uuid, timestamptz, text, text) from public;
grant execute on function app.outbox_publish(
    uuid, text, jsonb, jsonb, uuid, timestamptz, text, text)
    to penstock_outbox_ingest;
