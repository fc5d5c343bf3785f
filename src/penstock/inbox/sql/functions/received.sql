create or replace function webhook.received(
    p_results text[], p_ids uuid[], p_webhook_ids uuid[], p_event_ids text[],
    p_body_sha256 bytea[], p_shared_ids uuid[], p_shared_bodies bytea[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if cardinality(p_shared_ids) > 0 then
        insert into webhook.bodies (delivery_id, raw_body)
        select b.id, b.body from unnest(p_shared_ids, p_shared_bodies) as b (id, body)
        where exists (select from public.webhook_events e
                      where e.id = any (p_ids) and e.delivery_id = b.id);
    end if;
    if 'conflicting_duplicate' = any (p_results) then
        perform webhook.note_conflicts(array_agg(f.webhook_id), array_agg(f.event_id),
                                       array_agg(f.sha256))
        from unnest(p_results, p_webhook_ids, p_event_ids, p_body_sha256)
             as f (result, webhook_id, event_id, sha256)
        where f.result = 'conflicting_duplicate';
    end if;
end
$$;

comment on function webhook.received(text[], uuid[], uuid[], text[], bytea[], uuid[], bytea[]) is
    'What goes with a group of received events: shared bodies and the record of conflicts.';
revoke all on function webhook.received(text[], uuid[], uuid[], text[], bytea[], uuid[], bytea[])
    from public;
