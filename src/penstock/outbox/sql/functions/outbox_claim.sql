-- Two statements on purpose: the pick is an index scan from the watermark that no later join can
-- talk the planner out of; the write then goes by ctid. Lock order: rows by pos, skipping locked
-- ones, so that claims never wait for each other.
create or replace function app.outbox_claim(
    p_limit  integer,
    p_token  uuid,
    p_tenant uuid default null,
    p_owner  uuid default null,
    p_topics text[] default null,
    p_skip   text[] default '{}'
) returns table (
    seq bigint, id uuid, tenant_id uuid, topic text, payload jsonb, headers jsonb,
    created_at timestamptz, ordering_key text, processing_token uuid, attempts integer,
    max_attempts integer, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer,
    event_id uuid, event_topic text
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
    v_wm bigint;
    v_joint int8multirange;
    v_skip text[] := coalesce(p_skip, '{}') || penstock.paused('topic')
        || app.outbox_elsewhere(p_topics is null);
    v_idle uuid[] := app.outbox_paused_tenants();
    v_lease_s integer;
    v_max integer;
    v_fair boolean;
    v_tids tid[];
begin
    perform app.outbox_check_token(p_token);
    if penstock.is_paused('outbox') then
        return;
    end if;
    p_tenant := app.own_tenant(p_tenant);
    perform app.outbox_enter_rows();
    perform app.outbox_tend(false);
    v_wm := app.outbox_mark();
    v_joint := app.outbox_joint();
    select c.lease_s, c.max_attempts, c.fairness = 'round_robin' into v_lease_s, v_max, v_fair
    from penstock.queue_config c where c.queue = 'outbox';
    if v_fair and p_tenant is null then
        v_tids := app.outbox_pick_fair(v_limit, p_topics, v_skip, v_idle);
    else
        v_tids := array(
            select o.ctid from public.outbox o
            where o.pos > v_wm
              and (p_topics is null or o.topic = any (p_topics))
              and o.topic <> all (v_skip)
              and (p_tenant is null or o.tenant_id = p_tenant)
              and coalesce(o.tenant_id <> all (v_idle), true) and not v_joint @> o.seq
            order by o.pos limit v_limit
            for update skip locked);
    end if;
    return query
        with taken as (
            update public.outbox o
            set pos = null,
                processing_token = p_token,
                lease_epoch = o.lease_epoch + 1,
                lease_owner = p_owner,
                lease_expires_at = penstock.clock() + make_interval(secs => v_lease_s),
                attempts = o.attempts + 1,
                total_attempts = o.total_attempts + 1
            where o.ctid = any (v_tids)
            returning o.seq, o.id, o.tenant_id, o.topic, o.payload, o.headers, o.created_at,
                      o.ordering_key, o.processing_token, o.attempts, o.lease_epoch,
                      o.lease_expires_at, o.event_id, o.event_topic, o.relay
        )
        select t.seq, t.id, t.tenant_id, t.topic, t.payload, t.headers, t.created_at,
               t.ordering_key, t.processing_token, t.attempts,
               app.outbox_attempts_max(t.relay, v_max), t.lease_epoch,
               t.lease_expires_at, v_lease_s, t.event_id, t.event_topic
        from taken t
        order by t.created_at, t.seq;
end
$$;

comment on function app.outbox_claim(integer, uuid, uuid, uuid, text[], text[]) is
    'Lease up to p_limit ready events under a fresh token, oldest first; null tenant means all.';
revoke all on function app.outbox_claim(integer, uuid, uuid, uuid, text[], text[]) from public;
grant execute on function app.outbox_claim(integer, uuid, uuid, uuid, text[], text[])
    to penstock_outbox_executor;
