-- Asked only when not all of a group are new. Planned anew each time: a plan made while the table
-- was empty goes by webhook_id alone and reads every event of the source.
create or replace function webhook.judge_arrivals(
    p_stored uuid[], p_over uuid[], p_ids uuid[], p_webhook_ids uuid[], p_event_ids text[],
    p_body_sha256 bytea[]
) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
    return array(
        select case
                when f.id = any (p_stored) then 'stored'
                when coalesce(s.body_sha256, m.body_sha256) = f.sha256 then 'duplicate'
                when s.id is not null or m.event_id is not null then 'conflicting_duplicate'
                when f.webhook_id = any (p_over) then 'over_quota'
                when length(f.event_id) between 1 and 500 then 'unknown_source'
                else 'bad_event_id' end
        from unnest(p_ids, p_webhook_ids, p_event_ids, p_body_sha256) with ordinality
             as f (id, webhook_id, event_id, sha256, ord)
        left join lateral (
            select e.id, e.body_sha256 from public.webhook_events e
            where e.webhook_id = f.webhook_id and e.event_id = f.event_id limit 1) s on true
        left join lateral (
            select k.event_id, k.body_sha256 from webhook.memory k
            where k.webhook_id = f.webhook_id and k.event_id = f.event_id limit 1) m on true
        order by f.ord);
end
$$;

comment on function webhook.judge_arrivals(uuid[], uuid[], uuid[], uuid[], text[], bytea[]) is
    'How each event of a group was taken: stored, known, in conflict, or not wanted.';
revoke all on function webhook.judge_arrivals(uuid[], uuid[], uuid[], uuid[], text[], bytea[])
    from public;
