-- Which dead letters a filter means, oldest first. Every condition that is null is left out.
create or replace function webhook.replay_filter(
    p_source text default null, p_webhook_id uuid default null, p_event_id text default null,
    p_event_type text default null, p_error_code text default null,
    p_after timestamptz default null, p_before timestamptz default null, p_limit integer default 100
) returns table (
    id uuid, webhook_id uuid, source text, event_id text, event_type text, attempts integer,
    error_code text, error text, received_at timestamptz, dead_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select e.id, e.webhook_id, w.source, e.event_id, e.event_type, e.attempts, e.error_code,
           e.error, e.received_at, e.dead_at
    from public.webhook_events e
    left join public.webhook_endpoints w on w.id = e.webhook_id
    where e.status = 'dead_letter'
      and (p_source is null or w.source = p_source)
      and (p_webhook_id is null or e.webhook_id = p_webhook_id)
      and (p_event_id is null or e.event_id = p_event_id)
      and (p_event_type is null or e.event_type = p_event_type)
      and (p_error_code is null or e.error_code = p_error_code)
      and (p_after is null or e.received_at >= p_after)
      and (p_before is null or e.received_at < p_before)
    order by e.received_at, e.seq
    limit least(greatest(coalesce(p_limit, 100), 1), 1000)
$$;

comment on function webhook.replay_filter(
    text, uuid, text, text, text, timestamptz, timestamptz, integer) is
    'Dead letters by source, event, type, code and time of receipt; changes nothing.';
revoke all on function webhook.replay_filter(
    text, uuid, text, text, text, timestamptz, timestamptz, integer) from public;
grant execute on function webhook.replay_filter(
    text, uuid, text, text, text, timestamptz, timestamptz, integer) to penstock_operator;
