-- Routes are pairs of source and LIKE pattern, the most particular first; route tells which one
-- fits. Two statements on purpose: see webhook.pick_events; the write then goes by ctid.
create or replace function webhook.inbox_claim(
    p_limit    integer,
    p_token    uuid,
    p_owner    uuid default null,
    p_sources  text[] default null,
    p_patterns text[] default null,
    p_full     boolean[] default null
) returns table (
    seq bigint, id uuid, webhook_id uuid, event_id text, event_type text, source text,
    route integer, raw_body bytea, payload jsonb, content_type text, delivery_id uuid,
    headers jsonb, signature text, received_at timestamptz, lease_token uuid, attempts integer,
    max_attempts integer, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    v_ids uuid[];
    v_policy record;
    v_tids tid[];
    v_routes integer[];
begin
    if p_token is null then
        raise exception using errcode = 'PN201', message = 'a claim needs a token of its own',
            hint = 'use a fresh random UUID for every claim';
    end if;
    if penstock.is_paused('inbox') then
        return;
    end if;
    perform webhook.inbox_tend(false);
    select c.lease_s, c.max_attempts into v_policy
    from penstock.queue_config c where c.queue = 'inbox';
    if p_sources is not null then
        v_ids := array(
            select w.id from unnest(p_sources) with ordinality as f (source, ord)
            left join public.webhook_endpoints w on w.source = f.source
            order by f.ord);
    end if;
    select array_agg(k.tid), array_agg(k.route) into v_tids, v_routes
    from webhook.pick_events(v_limit, null, v_ids, p_patterns, p_full) k;
    return query
        with taken as (
            update public.webhook_events e
            set status = 'processing', pos = null, lease_token = p_token,
                lease_epoch = e.lease_epoch + 1, lease_owner = p_owner,
                lease_expires_at = penstock.clock() + make_interval(secs => v_policy.lease_s),
                last_attempt_at = penstock.clock(),
                attempts = e.attempts + 1, total_attempts = e.total_attempts + 1
            from unnest(v_tids, v_routes) as f (tid, route)
            where e.ctid = f.tid
            returning e.*, f.route
        )
        select t.seq, t.id, t.webhook_id, t.event_id, t.event_type, w.source, t.route, t.raw_body,
               t.payload, t.content_type, t.delivery_id, t.headers, t.signature, t.received_at,
               t.lease_token, t.attempts, v_policy.max_attempts, t.lease_epoch, t.lease_expires_at,
               v_policy.lease_s
        from taken t
        left join public.webhook_endpoints w on w.id = t.webhook_id
        order by t.received_at, t.seq;
end
$$;

comment on function webhook.inbox_claim(integer, uuid, uuid, text[], text[], boolean[]) is
    'Lease up to p_limit ready events under a fresh token, oldest first.';
revoke all on function webhook.inbox_claim(integer, uuid, uuid, text[], text[], boolean[])
    from public;
grant execute on function webhook.inbox_claim(integer, uuid, uuid, text[], text[], boolean[])
    to penstock_inbox_executor;
