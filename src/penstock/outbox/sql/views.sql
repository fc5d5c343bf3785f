create or replace view app.outbox_all as
    select o.seq, o.id, o.tenant_id, coalesce(o.event_topic, o.topic) as topic, o.payload, o.headers,
           o.created_at, o.ordering_key,
           o.total_attempts + (j.token is not null)::integer as total_attempts, o.replay_count,
           o.delivered_at, o.dead_at, o.held_at, o.error_code, o.error,
           case when coalesce(o.processing_token, j.token) is not null then 'LEASED'
                when o.pos is not null then 'READY'
                when o.next_attempt_at is not null then 'WAITING'
                when o.dead_at is not null then 'DEAD'
                when o.held_at is not null then 'HELD'
                when o.turn is not null then 'BEHIND'
                else 'FANNED' end as state,
           o.route, o.event_id
    from public.outbox o
    left join public.outbox_joint_leases j on j.seqs @> o.seq and o.pos <= j.upto
    union all
    select seq, id, tenant_id, coalesce(event_topic, topic), payload, headers, created_at,
           ordering_key, total_attempts, replay_count, delivered_at, null, null, null, null, state,
           route, event_id
    from public.outbox_archive;
comment on view app.outbox_all is 'Every event and every delivery of one, hot and archived, with its state.';

create or replace view app.outbox_dead as
    select 'outbox'::text as queue, o.id, coalesce(o.event_topic, o.topic) as topic,
           case when o.dead_at is not null then 'DEAD' else 'HELD' end as state,
           o.error_code, penstock.fingerprint(o.error_code, o.error) as fingerprint, o.error,
           o.attempts, o.created_at, coalesce(o.dead_at, o.held_at) as dead_at
    from public.outbox o
    where o.dead_at is not null or o.held_at is not null;
comment on view app.outbox_dead is 'Events that need a person.';

create or replace view app.outbox_stats as
    with joint as (
        select count(*) as leased,
               count(*) filter (where j.expires_at <= penstock.clock()) as expired
        from public.outbox_joint_leases j
        cross join unnest(j.seqs) as r (run)
        join public.outbox o on o.seq >= lower(r.run) and o.seq < upper(r.run) and o.pos <= j.upto
    )
    select 'outbox'::text as queue,
           (select count(*) from public.outbox where pos is not null) - joint.leased as ready,
           (select count(*) from public.outbox where next_attempt_at is not null)
             + (select count(*) from public.outbox where turn is not null) as scheduled,
           (select count(*) from public.outbox where processing_token is not null)
             + joint.leased as leased,
           (select count(*) from public.outbox
             where processing_token is not null and lease_expires_at <= penstock.clock())
             + joint.expired as expired,
           (select count(*) from public.outbox where dead_at is not null) as dead,
           (select count(*) from public.outbox where held_at is not null) as held,
           (select extract(epoch from penstock.clock() - o.created_at)::double precision
              from public.outbox o
             where o.pos is not null
               and not exists (select from public.outbox_joint_leases j
                               where j.seqs @> o.seq and o.pos <= j.upto)
             order by o.pos limit 1) as oldest_age_s
    from joint;
comment on view app.outbox_stats is 'Depth and trouble of the outbox, from the hot table only.';

create or replace view app.outbox_blocked_keys as
    select o.tenant_id, o.ordering_key, o.route, o.id as head_id,
           coalesce(o.event_topic, o.topic) as topic,
           case when o.dead_at is not null then 'DEAD'
                when o.held_at is not null then 'HELD'
                else 'WAITING' end as state,
           o.error_code, o.attempts, o.next_attempt_at,
           coalesce(o.dead_at, o.held_at) as dead_at,
           (select count(*) from public.outbox b
             where b.key_hash = o.key_hash and b.turn is not null) as behind
    from public.outbox o
    where o.key_hash is not null and o.turn is null and o.parked_at is null
      and (o.dead_at is not null or o.held_at is not null
           or (o.next_attempt_at is not null and o.attempts > 0));
comment on view app.outbox_blocked_keys is
    'Ordering keys that do not move: their head is dead, held, or waits for another attempt.';

create or replace view app.outbox_deliveries as
    select e.event_id, e.route, e.id as delivery_id, e.topic, e.state, e.total_attempts,
           e.error_code, e.created_at, e.delivered_at, e.dead_at, e.held_at
    from app.outbox_all e
    where e.event_id is not null;
comment on view app.outbox_deliveries is
    'Events with several routes: one row for each route, with a life of its own.';

create or replace view app.outbox_destination_stats as
    select d.name, d.kind, d.enabled, d.concurrency, d.rate_per_s, d.breaker, d.breaker_opened_at,
           d.breaker_until, d.breaker_failures, d.last_error, d.last_error_at,
           case when d.fault_at > penstock.clock() - interval '2 minutes' then d.fault end as fault,
           exists (select from penstock.pause p
                   where p.target = 'destination/' || d.name
                     and (p.until_at is null or p.until_at > penstock.clock())) as paused,
           coalesce(w.ready, 0) as ready, coalesce(w.waiting, 0) as waiting,
           coalesce(w.leased, 0) as leased, coalesce(w.dead, 0) as dead
    from public.outbox_destinations d
    left join (
        select r.destination,
               count(*) filter (where o.pos is not null) as ready,
               count(*) filter (where o.next_attempt_at is not null or o.turn is not null) as waiting,
               count(*) filter (where o.processing_token is not null) as leased,
               count(*) filter (where o.dead_at is not null or o.held_at is not null) as dead
        from public.outbox o join public.outbox_routes r on r.route = o.route
        group by r.destination
    ) w on w.destination = d.name
    where d.kind <> 'python';
comment on view app.outbox_destination_stats is
    'Configured destinations: their state, and how many deliveries are on their way to each.';

create or replace view relay.dead_letters as
    select coalesce(o.relay, e.relay) as source, coalesce(o.event_id, o.id) as id, o.route, o.payload,
           o.total_attempts as retry_count, coalesce(o.error, o.error_code) as last_error,
           o.dead_at as moved_at, a.alerted_at
    from public.outbox o
    left join public.outbox e on e.seq = o.parent
    left join public.outbox_alerts a
           on a.queue = 'outbox' and a.topic = coalesce(o.event_topic, o.topic) and a.state = 'DEAD'
          and a.fingerprint = penstock.fingerprint(o.error_code, o.error)
          and a.last_at >= o.dead_at
    where o.dead_at is not null and coalesce(o.relay, e.relay) is not null;
comment on view relay.dead_letters is
    'Rows of relay tables whose attempts are used up, and when an alert of their kind went out.';

create or replace view app.outbox_dead_destinations as
    select o.id, r.destination
    from public.outbox o join public.outbox_routes r on r.route = o.route
    where o.dead_at is not null or o.held_at is not null;
comment on view app.outbox_dead_destinations is 'Which destination a dead or held delivery was for.';
