-- One snapshot, so it is true on a live system. Younger events only: history goes with its partition,
-- and a claim whose end was dropped with its day would look like one without an end.
create or replace function app.outbox_prove(p_since interval default interval '1 day')
returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with young as (
        select penstock.clock() - least(coalesce(p_since, c.retention), c.retention) as since
        from penstock.queue_config c where c.queue = 'outbox'
    ), event as (
        select o.id, o.lease_epoch, (o.processing_token is not null)::int as own
        from public.outbox o, young y where o.created_at >= y.since
        union all
        select a.id, a.lease_epoch, (a.lease_token is not null)::int
        from public.outbox_archive a, young y
        where a.created_at >= y.since and a.delivered_at >= y.since
    ), ended as (
        select t.event_id, count(*) as ends from public.outbox_attempts t, young y
        where t.ended_at >= y.since group by t.event_id
    )
    select 'K5', 'event ' || e.id,
           format('claimed %s times, but %s claims are accounted for', e.lease_epoch,
                  coalesce(n.ends, 0) + e.own)
    from event e left join ended n on n.event_id = e.id
    where e.lease_epoch <> coalesce(n.ends, 0) + e.own
    union all
    select 'K6', 'event ' || e.id, format('is in %s places', count(*))
    from event e group by e.id having count(*) > 1
    union all
    select 'K6', 'event ' || o.id, 'is in no state, or in more than one'
    from public.outbox o
    where num_nonnulls(o.pos, o.processing_token, o.next_attempt_at, o.dead_at, o.held_at, o.turn,
                       o.fanned_at) <> 1
$$;

comment on function app.outbox_prove(interval) is
    'Violations of K5 and K6 among events of the last p_since; no rows means that they hold.';
revoke all on function app.outbox_prove(interval) from public;
grant execute on function app.outbox_prove(interval)
    to penstock_operator, penstock_readonly, penstock_auditor;
