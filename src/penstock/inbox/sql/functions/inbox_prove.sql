-- One snapshot, so it is true on a live system. Younger events only: history goes with its partition,
-- and a claim whose end was dropped with its day would look like one without an end.
create or replace function webhook.inbox_prove(p_since interval default interval '1 day')
returns table (invariant text, subject text, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with young as (
        select penstock.clock() - least(coalesce(p_since, c.retention), c.retention) as since
        from penstock.queue_config c where c.queue = 'inbox'
    ), event as (
        select e.id, e.webhook_id, e.event_id, e.lease_epoch, true as hot,
               (e.lease_token is not null or e.status = 'success' and e.finished_token is not null)
                   ::int as own
        from public.webhook_events e, young y where e.received_at >= y.since
        union all
        select a.id, a.webhook_id, a.event_id, a.lease_epoch, false,
               (a.finished_token is not null)::int
        from public.webhook_events_archive a, young y
        where a.received_at >= y.since and a.processed_at >= y.since
    ), ended as (
        select t.id, count(*) as ends from public.webhook_attempts t, young y
        where t.ended_at >= y.since group by t.id
    )
    select 'K5', 'event ' || e.id,
           format('claimed %s times, but %s claims are accounted for', e.lease_epoch,
                  coalesce(n.ends, 0) + e.own)
    from event e left join ended n on n.id = e.id
    where e.lease_epoch <> coalesce(n.ends, 0) + e.own
    union all
    select 'N2', 'event ' || e.event_id, format('is stored %s times', count(*))
    from event e group by e.webhook_id, e.event_id having count(*) > 1
    union all
    select 'N2', 'event ' || e.event_id,
           case when e.hot then 'is at work and remembered as done'
                else 'is archived and not remembered' end
    from event e
    where e.hot = exists (select from webhook.memory m
                          where m.webhook_id = e.webhook_id and m.event_id = e.event_id)
    union all
    select 'N6', 'event ' || e.event_id, 'its stored bytes are not those that were received'
    from public.webhook_events e, young y
    where e.received_at >= y.since and sha256(e.raw_body) <> e.body_sha256
$$;

comment on function webhook.inbox_prove(interval) is
    'Violations of K5, N2 and N6 among events of the last p_since; no rows means that they hold.';
revoke all on function webhook.inbox_prove(interval) from public;
grant execute on function webhook.inbox_prove(interval)
    to penstock_operator, penstock_readonly, penstock_auditor;
