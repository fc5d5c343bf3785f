-- One audit row for each new body, however often it comes: a sender that repeats itself must not
-- fill a log that nobody may shorten.
create or replace function webhook.note_conflicts(
    p_webhook_ids uuid[], p_event_ids text[], p_body_sha256 bytea[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_fresh integer;
begin
    with told as (
        insert into webhook.conflicts as c (webhook_id, event_id, body_sha256, times)
        select f.webhook_id, f.event_id, f.sha256, count(*)
        from unnest(p_webhook_ids, p_event_ids, p_body_sha256) as f (webhook_id, event_id, sha256)
        group by 1, 2, 3
        order by 1, 2, 3
        on conflict (webhook_id, event_id, body_sha256) do update
            set times = c.times + excluded.times
        returning c.webhook_id, c.event_id, c.body_sha256, c.xmax = 0 as fresh
    ), counted as (
        insert into webhook.tally (metric, webhook_id, label, count)
        select 'conflict', f.webhook_id, 'conflicting_duplicate', count(*)
        from unnest(p_webhook_ids) as f (webhook_id)
        group by 2
    )
    select count(audit.record('conflicting_duplicate', 'public.webhook_events',
        jsonb_build_object('webhook_id', t.webhook_id, 'event_id', t.event_id,
                           'body_sha256', encode(t.body_sha256, 'hex')),
        'the same event id came with another body; the first one is kept'))
    into v_fresh
    from told t where t.fresh;
end
$$;

comment on function webhook.note_conflicts(uuid[], text[], bytea[]) is
    'Record events that came again with another body.';
revoke all on function webhook.note_conflicts(uuid[], text[], bytea[]) from public;
