-- Deliveries to configured destinations, each up to a number of its own: so one that is slow, limited or
-- broken takes no place in a claim from the others. A breaker that has been open long enough lets one
-- delivery through; until its answer is weighed, or its lease has ended, no other.
create or replace function app.outbox_claim_for(
    p_destinations text[], p_limits integer[], p_token uuid, p_owner uuid default null
) returns table (
    seq bigint, id uuid, tenant_id uuid, topic text, payload jsonb, headers jsonb,
    created_at timestamptz, ordering_key text, processing_token uuid, attempts integer,
    max_attempts integer, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer,
    event_id uuid, event_topic text, destination text, watched boolean, probe boolean
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
    v_names text[];
    v_allowed integer[];
    v_lease_s integer;
    v_max integer;
    v_fair boolean;
    v_shares tid[] := '{}';
    v_tids tid[];
begin
    perform app.outbox_check_token(p_token);
    if penstock.is_paused('outbox') or app.own_tenant(null) is not null then
        return;
    end if;
    perform app.outbox_tend(false);
    select array_agg(a.name), array_agg(least(a.allowed, 1000)) into v_names, v_allowed
    from app.outbox_allowance(p_destinations, p_limits) a where a.allowed > 0;
    select c.lease_s, c.max_attempts, c.fairness = 'round_robin' into v_lease_s, v_max, v_fair
    from penstock.queue_config c where c.queue = 'outbox';
    if v_fair then
        perform app.outbox_refill_shares(v_names, v_allowed);
        v_shares := app.outbox_pick_shares(v_names, v_allowed);
    end if;
    v_tids := v_shares || app.outbox_pick_for(v_names, v_allowed, v_shares);
    if cardinality(v_tids) < (select sum(a) from unnest(v_allowed) as a)
       and app.outbox_refill(v_names, v_allowed) > 0 then
        v_tids := v_shares || app.outbox_pick_for(v_names, v_allowed, v_shares);
    end if;
    if cardinality(v_tids) = 0 then
        return;
    end if;
    perform app.outbox_spend(v_tids, v_lease_s);
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
                      o.lease_expires_at, o.event_id, o.event_topic, o.route, o.relay
        )
        select t.seq, t.id, t.tenant_id, t.topic, t.payload, t.headers, t.created_at,
               t.ordering_key, t.processing_token, t.attempts,
               app.outbox_attempts_max(t.relay, v_max), t.lease_epoch,
               t.lease_expires_at, v_lease_s, t.event_id, t.event_topic, d.name,
               d.breaker <> 'closed' or d.breaker_failures > 0, d.breaker <> 'closed'
        from taken t
        join public.outbox_routes r on r.route = t.route
        join public.outbox_destinations d on d.name = r.destination
        order by t.created_at, t.seq;
end
$$;

comment on function app.outbox_claim_for(text[], integer[], uuid, uuid) is
    'Lease ready deliveries of destinations, up to a number for each, under a fresh token.';
revoke all on function app.outbox_claim_for(text[], integer[], uuid, uuid) from public;
grant execute on function app.outbox_claim_for(text[], integer[], uuid, uuid)
    to penstock_outbox_executor;
