-- Events come as one JSON array: a text is what every driver sends quickly, arrays are not. COPY into the
-- table is refused where rows are secured; through another table it was measured to be slower than this
-- (docs/how-to/publish-with-your-driver.md).
create or replace function app.outbox_publish_many(
    p_topic        text,
    p_events       jsonb,
    p_headers      jsonb default '{}',
    p_tenant       uuid default null,
    p_deliver_at   timestamptz default null,
    p_ordering_key text default null
) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_later boolean := coalesce(p_deliver_at > penstock.clock(), false);
    v_count integer;
begin
    p_tenant := app.own_tenant(p_tenant);
    -- Asked only where it will be refused: a call takes as long as everything else here.
    if p_topic is null or length(p_topic) not between 1 and 200 or p_topic like 'penstock.%' then
        perform app.outbox_check_topic(p_topic);
    end if;
    if length(p_ordering_key) not between 1 and 200 then
        raise exception using errcode = 'PN401', message = 'an ordering key has 1 to 200 characters';
    end if;
    if exists (select from jsonb_array_elements(p_events) as e (event)
               where coalesce(pg_column_size(e.event -> 1), 1048577) > 1048576) then
        raise exception using
            errcode = 'PN401',
            message = 'a payload is required and has at most 1 MiB',
            hint    = 'publish a reference to a large body, not the body';
    end if;
    insert into public.outbox
        (id, tenant_id, topic, payload, headers, ordering_key, pos, next_attempt_at)
    select coalesce((e.event ->> 0)::uuid, penstock.uuidv7()), p_tenant, p_topic, e.event -> 1,
           coalesce(p_headers, '{}'), p_ordering_key,
           case when not v_later then nextval('penstock.outbox_next') end,
           case when v_later then p_deliver_at end
    from jsonb_array_elements(p_events) with ordinality as e (event, place)
    order by e.place;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_publish_many(text, jsonb, jsonb, uuid, timestamptz, text) is
    'Publish many events of one topic, [[id or null, payload], ...], in the caller''s transaction.';
revoke all on function app.outbox_publish_many(text, jsonb, jsonb, uuid, timestamptz, text)
    from public;
grant execute on function app.outbox_publish_many(text, jsonb, jsonb, uuid, timestamptz, text)
    to penstock_outbox_ingest;
