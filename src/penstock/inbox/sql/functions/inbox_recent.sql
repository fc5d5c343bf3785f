-- For a live view: what came after a number, or the last few. Commits may overtake numbers, so a
-- viewer may miss one; nothing but eyes depends on it.
create or replace function webhook.inbox_recent(p_after bigint, p_source text, p_limit integer)
returns table (
    seq bigint, received_at timestamptz, source text, event_type text, event_id text, state text,
    total_attempts integer, error_code text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select r.seq, r.received_at, r.source, r.event_type, r.event_id, r.state, r.total_attempts,
           r.error_code
    from (
        select e.seq, e.received_at, w.source, e.event_type, e.event_id, e.status::text as state,
               e.total_attempts, e.error_code
        from public.webhook_events e
        left join public.webhook_endpoints w on w.id = e.webhook_id
        where (p_after is null or e.seq > p_after) and (p_source is null or w.source = p_source)
        order by e.id desc
        limit least(greatest(p_limit, 0), 1000)
    ) r
    order by r.seq
$$;

comment on function webhook.inbox_recent(bigint, text, integer) is
    'Events received lately, oldest first, without their payloads.';
revoke all on function webhook.inbox_recent(bigint, text, integer) from public;
grant execute on function webhook.inbox_recent(bigint, text, integer)
    to penstock_operator, penstock_readonly, penstock_auditor;
