-- One statement for a whole group of requests. The unique key decides who is first; the trigger
-- inbox_arrived takes back what memory knows. Rows go in by key, so that two groups that share
-- events never wait for each other crosswise.
create or replace function webhook.receive(
    p_ids uuid[], p_webhook_ids uuid[], p_event_ids text[], p_event_types text[],
    p_raw_bodies bytea[], p_payloads text[], p_signatures text[], p_headers text[],
    p_body_sha256 bytea[], p_content_types text[], p_delivery_ids uuid[],
    p_shared_ids uuid[] default '{}', p_shared_bodies bytea[] default '{}'
) returns table (ord integer, result text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_over uuid[] := webhook.over_quota(p_webhook_ids);
    v_now timestamptz := penstock.clock();
    v_stored uuid[];
    v_results text[];
begin
    with put as (
        insert into public.webhook_events as e
            (id, webhook_id, event_id, event_type, provider, raw_body, payload, signature, headers,
             body_sha256, content_type, delivery_id, received_at, status, pos, dead_at, error_code,
             error)
        select f.id, f.webhook_id, f.event_id, left(coalesce(f.event_type, ''), 200), w.provider,
               f.raw_body, f.payload, f.signature, coalesce(f.headers, '{}'), f.sha256,
               coalesce(f.content_type, ''), f.delivery_id, v_now,
               case when f.payload is null then 'dead_letter' else 'pending' end
                   ::public.webhook_event_status,
               case when f.payload is not null then nextval('penstock.inbox_next') end,
               case when f.payload is null then v_now end,
               case when f.payload is null then 'payload_unrepresentable' end,
               case when f.payload is null then 'no JSON that can be held; raw_body has it' end
        from unnest(p_ids, p_webhook_ids, p_event_ids, p_event_types, p_raw_bodies,
                    webhook.as_json_many(p_payloads), p_signatures, webhook.as_json_many(p_headers),
                    p_body_sha256, p_content_types, p_delivery_ids) with ordinality
             as f (id, webhook_id, event_id, event_type, raw_body, payload, signature, headers,
                   sha256, content_type, delivery_id, ord)
        join public.webhook_endpoints w on w.id = f.webhook_id and w.enabled
        where f.webhook_id <> all (v_over) and length(f.event_id) between 1 and 500
        order by f.webhook_id, f.event_id, f.ord
        on conflict (webhook_id, event_id) do nothing
        returning e.id
    )
    select coalesce(array_agg(p.id), '{}') into v_stored from put p;

    -- The trigger has taken back what memory knows.
    v_stored := array(select e.id from public.webhook_events e where e.id = any (v_stored));
    if cardinality(v_stored) = cardinality(p_ids) then
        v_results := array_fill('stored'::text, array[cardinality(p_ids)]);
    else
        v_results := webhook.judge_arrivals(v_stored, v_over, p_ids, p_webhook_ids, p_event_ids,
                                            p_body_sha256);
    end if;
    perform webhook.received(v_results, p_ids, p_webhook_ids, p_event_ids, p_body_sha256,
                             p_shared_ids, p_shared_bodies);
    return query select r.ord::integer, r.result
                 from unnest(v_results) with ordinality as r (result, ord);
end
$$;

comment on function webhook.receive(uuid[], uuid[], text[], text[], bytea[], text[], text[], text[],
    bytea[], text[], uuid[], uuid[], bytea[]) is
    'Store verified events; per event: stored, duplicate, conflicting_duplicate, over_quota, …';
revoke all on function webhook.receive(uuid[], uuid[], text[], text[], bytea[], text[], text[],
    text[], bytea[], text[], uuid[], uuid[], bytea[]) from public;
grant execute on function webhook.receive(uuid[], uuid[], text[], text[], bytea[], text[], text[],
    text[], bytea[], text[], uuid[], uuid[], bytea[]) to penstock_inbox_ingest;
