create or replace view webhook.inbox_all as
    select e.id, e.webhook_id, w.source, e.event_id, e.event_type, e.provider, e.payload, e.headers,
           e.body_sha256, e.received_at, e.total_attempts, e.replay_count, e.processed_at,
           e.dead_at, e.error_code, e.error,
           case when e.pos is not null then 'READY'
                when e.lease_token is not null then 'LEASED'
                when e.next_attempt_at is not null then 'WAITING'
                when e.status = 'success' then 'SUCCESS'
                when e.error_code = 'UNKNOWN' then 'HELD'
                else 'DEAD' end as state
    from public.webhook_events e
    left join public.webhook_endpoints w on w.id = e.webhook_id
    union all
    select a.id, a.webhook_id, w.source, a.event_id, a.event_type, a.provider, a.payload, a.headers,
           a.body_sha256, a.received_at, a.total_attempts, a.replay_count, a.processed_at, null,
           null, null, a.state
    from public.webhook_events_archive a
    left join public.webhook_endpoints w on w.id = a.webhook_id;
comment on view webhook.inbox_all is 'Every event, hot and archived, with its state.';

create or replace view webhook.inbox_dead as
    select 'inbox'::text as queue, e.id,
           coalesce(w.source, e.webhook_id::text) || '/' || e.event_type as topic,
           case when e.error_code = 'UNKNOWN' then 'HELD' else 'DEAD' end as state,
           e.error_code, penstock.fingerprint(e.error_code, e.error) as fingerprint, e.error,
           e.attempts, e.received_at as created_at, e.dead_at
    from public.webhook_events e
    left join public.webhook_endpoints w on w.id = e.webhook_id
    where e.status = 'dead_letter';
comment on view webhook.inbox_dead is 'Events that need a person.';

create or replace view webhook.inbox_stats as
    select 'inbox'::text as queue,
           (select count(*) from public.webhook_events where pos is not null) as ready,
           (select count(*) from public.webhook_events
             where next_attempt_at is not null) as scheduled,
           (select count(*) from public.webhook_events where lease_token is not null) as leased,
           (select count(*) from public.webhook_events
             where lease_token is not null and lease_expires_at <= penstock.clock()) as expired,
           (select count(*) from public.webhook_events
             where status = 'dead_letter' and error_code is distinct from 'UNKNOWN') as dead,
           (select count(*) from public.webhook_events
             where status = 'dead_letter' and error_code = 'UNKNOWN') as held,
           (select extract(epoch from penstock.clock() - e.received_at)::double precision
              from public.webhook_events e
             where e.pos is not null order by e.pos limit 1) as oldest_age_s;
comment on view webhook.inbox_stats is 'Depth and trouble of the inbox, from the hot table only.';

create or replace view webhook.metrics as
    select t.metric, t.webhook_id, w.source, coalesce(w.provider, 'unknown') as provider, t.label,
           sum(t.count)::bigint as total
    from webhook.tally t
    left join public.webhook_endpoints w on w.id = t.webhook_id
    group by t.metric, t.webhook_id, w.source, w.provider, t.label;
comment on view webhook.metrics is
    'Counters of processing, dead letters, replays and conflicts, exact because transactional.';
