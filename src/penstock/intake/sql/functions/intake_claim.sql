-- Reads, leases and fences in one statement. The fence is a write-ahead: commit_started_at stands
-- before the ledger is called, so that nobody offers a resource again whose commit may have
-- happened. It is not set where something comes before the commit (validation), or nothing follows
-- (no config, attempts used up, hold over). Here and in the other verbs of the bridge the status is
-- compared as text: as an enum it invites the index over all reserved slots, which stale statistics
-- say is empty.
create or replace function public.intake_claim(p_limit int default null, p_lease_s int default null)
returns table (
    msg_id bigint, read_ct int, enqueued_at timestamptz, vt timestamptz, message jsonb,
    headers jsonb, pool_id text, resource_id uuid, user_id text, reservation_id uuid, slot text,
    validated boolean, commit_started boolean, exhausted boolean, hold_over boolean,
    configured boolean, max_retries int, lease_s int, validation_webhook_url text,
    commit_rpc_name text, commit_webhook_url text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    v_paused text[] := penstock.paused('pool');
    v_ids bigint[];
begin
    if penstock.is_paused('intake') then
        return;
    end if;
    v_ids := penstock_intake.pick_messages(least(greatest(coalesce(p_limit, (
        select max(c.batch_size) from public.engine_config c where c.is_active), 100), 1), 1000));
    if cardinality(v_paused) > 0 then
        v_ids := penstock_intake.park_paused(v_ids, v_paused);
    end if;
    return query
        with leased as (
            update pgmq.q_intake_queue q
            set read_ct = q.read_ct + 1,
                headers = case when jsonb_typeof(q.headers) = 'object'
                               then q.headers - 'waiting' end,
                vt = v_now + make_interval(secs => coalesce(p_lease_s, (
                    select c.visibility_timeout_sec from public.engine_config c
                    where c.pool_id = q.message ->> 'pool_id'), 45))
            where q.msg_id = any (v_ids)
            returning q.msg_id, q.read_ct, q.enqueued_at, q.vt, q.message, q.headers,
                q.message ->> 'pool_id' as pool_id, q.message ->> 'user_id' as user_id,
                penstock_intake.as_uuid(q.message ->> 'resource_id') as resource_id,
                penstock_intake.as_uuid(q.message ->> 'reservation_id') as reservation_id
        ), joined as (
            select l.*, c.max_retries, c.validation_webhook_url, c.commit_rpc_name,
                c.commit_webhook_url, c.pool_id is not null as configured,
                l.read_ct > coalesce(c.max_retries, 10) as exhausted,
                s.status, s.validated_at, s.commit_started_at, s.reservation_id as slot_reservation,
                coalesce(s.hold_expires_at <= v_now and s.commit_started_at is null, false) as over,
                coalesce(s.reservation_id = l.reservation_id or (l.reservation_id is null
                    and s.locked_by = l.user_id), false) as ours
            from leased l
            left join public.engine_config c on c.pool_id = l.pool_id
            left join public.inventory_slots s on s.id = l.resource_id
        ), fenced as (
            update public.inventory_slots s
            set commit_started_at = v_now
            from joined j
            where s.id = j.resource_id and s.reservation_id = j.slot_reservation
              and s.status::text = 'RESERVED' and s.commit_started_at is null
              and j.ours and j.configured and not j.exhausted and not j.over
              and (j.validation_webhook_url is null or s.validated_at is not null)
            returning s.id
        )
        select j.msg_id, j.read_ct, j.enqueued_at, j.vt, j.message, j.headers, j.pool_id,
            j.resource_id, j.user_id, coalesce(j.reservation_id, j.slot_reservation),
            case when j.ours then lower(j.status::text) else 'foreign' end,
            j.validated_at is not null, j.commit_started_at is not null or f.id is not null,
            j.exhausted, j.over, j.configured, j.max_retries,
            extract(epoch from j.vt - v_now)::int, j.validation_webhook_url, j.commit_rpc_name,
            j.commit_webhook_url
        from joined j left join fenced f on f.id = j.resource_id
        order by j.msg_id;
end
$$;

comment on function public.intake_claim(int, int) is
    'Lease ready messages, mark their commit as started where it comes next, and return each with '
    'its slot''s state (reserved, consumed, foreign) and its pool''s settings.';
revoke all on function public.intake_claim(int, int) from public;
grant execute on function public.intake_claim(int, int) to penstock_intake_executor;
