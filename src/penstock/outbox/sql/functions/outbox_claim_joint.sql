-- A claim costs one row instead of one for each event, as long as only plain events wait: for handlers
-- in Python, with no tenant's share to keep. Everything else is claimed row by row.
create or replace function app.outbox_claim_joint(
    p_limit  integer,
    p_token  uuid,
    p_owner  uuid default null,
    p_topics text[] default null,
    p_skip   text[] default '{}'
) returns table (
    seq bigint, id uuid, tenant_id uuid, topic text, payload jsonb, headers jsonb,
    created_at timestamptz, ordering_key text, processing_token uuid, attempts integer,
    max_attempts integer, lease_epoch bigint, lease_expires_at timestamptz, lease_s integer,
    event_id uuid, event_topic text, joint boolean
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
    v_skip text[] := coalesce(p_skip, '{}') || penstock.paused('topic')
        || app.outbox_elsewhere(p_topics is null);
    v_policy record;
    v_seqs int8multirange;
begin
    perform app.outbox_check_token(p_token);
    select c.lease_s, c.max_attempts, c.fairness into v_policy
    from penstock.queue_config c where c.queue = 'outbox';
    -- An old snapshot would not show the leases of others, and what this transaction has changed
    -- itself is not for positions that no abort takes back.
    if v_policy.fairness <> 'round_robin'
       and not penstock.is_paused('outbox') and app.own_tenant(null) is null
       and current_setting('transaction_isolation') = 'read committed'
       and pg_current_xact_id_if_assigned() is null
       and app.outbox_enter_joint() then
        perform app.outbox_tend(false);
        if pg_current_xact_id_if_assigned() is null then
            perform app.outbox_raise_joint();
        end if;
        v_seqs := app.outbox_join(v_limit, p_token, p_owner, p_topics, v_skip);
    end if;
    if v_seqs is null then
        return query select c.*, false from app.outbox_claim(
            p_limit, p_token, null, p_owner, p_topics, p_skip) c;
        return;
    end if;
    -- In the order of their numbers: so they are read, and need not be sorted.
    return query
        select o.seq, o.id, o.tenant_id, o.topic, o.payload, o.headers, o.created_at,
               o.ordering_key, j.token, o.attempts + 1, v_policy.max_attempts,
               o.lease_epoch + 1, j.expires_at, v_policy.lease_s, o.event_id, o.event_topic,
               true
        from public.outbox_joint_leases j
        cross join unnest(j.seqs) as r (run)
        join public.outbox o on o.seq >= lower(r.run) and o.seq < upper(r.run)
        where j.token = p_token;
end
$$;

comment on function app.outbox_claim_joint(integer, uuid, uuid, text[], text[]) is
    'Lease ready events under a fresh token: all by one lease where they are plain, else one by one.';
revoke all on function app.outbox_claim_joint(integer, uuid, uuid, text[], text[]) from public;
grant execute on function app.outbox_claim_joint(integer, uuid, uuid, text[], text[])
    to penstock_outbox_executor;
