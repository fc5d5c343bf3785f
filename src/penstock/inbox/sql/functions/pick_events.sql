-- An index scan from the watermark that no later join can talk the planner out of. Rows are locked
-- in the order of their positions and locked ones are skipped, so claims never wait for each other.
-- Of several patterns that fit, the first counts; if its handler is full, the event waits for it.
create or replace function webhook.pick_events(
    p_limit integer, p_webhook_id uuid,
    p_webhook_ids uuid[] default null, p_patterns text[] default null, p_full boolean[] default null
) returns table (tid tid, route integer)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint := pg_sequence_last_value('penstock.inbox_wm');
    v_paused uuid[] := array(
        select w.id from public.webhook_endpoints w
        where w.source = any (penstock.paused('source')));
begin
    if p_patterns is null then
        return query
            select e.ctid, null::integer
            from public.webhook_events e
            where e.pos > v_wm and e.webhook_id <> all (v_paused)
              and (p_webhook_id is null or e.webhook_id = p_webhook_id)
            order by e.pos
            limit p_limit
            for update skip locked;
        return;
    end if;
    return query
        select e.ctid, r.ord::integer
        from public.webhook_events e
        cross join lateral (
            select f.ord, f.is_full
            from unnest(p_webhook_ids, p_patterns, p_full) with ordinality
                 as f (webhook_id, pattern, is_full, ord)
            where f.webhook_id = e.webhook_id and e.event_type like f.pattern
            order by f.ord
            limit 1) r
        where e.pos > v_wm and e.webhook_id <> all (v_paused) and not r.is_full
        order by e.pos
        limit p_limit
        for update of e skip locked;
end
$$;

comment on function webhook.pick_events(integer, uuid, uuid[], text[], boolean[]) is
    'Lock ready events in order: of one source or all, or those that fit a pattern.';
revoke all on function webhook.pick_events(integer, uuid, uuid[], text[], boolean[]) from public;
