-- A lease that ended counts as an attempt: an event that kills its worker must not do so for ever.
-- With half of its attempts used up it is a suspect: it waits until inbox_bring_suspect lets it run
-- as the only one of its kind. Before that it comes back at once.
create or replace function webhook.inbox_reap(p_from_zero boolean default false) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_max integer := (select c.max_attempts from penstock.queue_config c where c.queue = 'inbox');
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := penstock.time_floor('penstock.inbox_lease');
    v_count integer;
    v_dead uuid[];
begin
    if p_from_zero then
        v_floor := '-infinity';
    end if;
    with expired as materialized (
        select e.ctid, e.lease_token as token
        from public.webhook_events e
        where e.lease_expires_at > v_floor and e.lease_expires_at <= v_now
        order by e.lease_expires_at
        limit 1000
        for update skip locked
    ), back as (
        update public.webhook_events e
        set status = case when e.attempts >= v_max then 'dead_letter' else 'pending' end
                ::public.webhook_event_status,
            pos = case when 2 * e.attempts < v_max then nextval('penstock.inbox_next') end,
            next_attempt_at = case when e.attempts < v_max and 2 * e.attempts >= v_max
                then v_now end,
            dead_at = case when e.attempts >= v_max then v_now end,
            lease_token = null, lease_owner = null, lease_expires_at = null,
            error_code = case when e.attempts >= v_max then 'ZOMBIE_LIMIT'
                when 2 * e.attempts >= v_max then 'ZOMBIE_SUSPECT' else 'ZOMBIE' end,
            error = 'the worker died or lost its lease'
        from expired x
        where e.ctid = x.ctid
        returning e.id, e.webhook_id, x.token, e.lease_epoch, e.dead_at is not null as dead
    ), counted as (
        insert into webhook.tally (metric, webhook_id, label, count)
        select 'processing', b.webhook_id, 'error', count(*) from back b group by b.webhook_id
        union all
        select 'dead_letter', b.webhook_id, 'ZOMBIE_LIMIT', count(*) from back b where b.dead
        group by b.webhook_id
    ), kept as (
        insert into public.webhook_attempts (id, lease_token, lease_epoch, outcome, error_code)
        select b.id, b.token, b.lease_epoch, 'ZOMBIE', 'ZOMBIE' from back b
    )
    select count(*), array_agg(b.id) filter (where b.dead) into v_count, v_dead from back b;
    if v_dead is not null then
        perform webhook.note_dead(v_dead);
    end if;
    return v_count;
end
$$;

comment on function webhook.inbox_reap(boolean) is
    'Bring events back whose lease has ended; dead when their attempts are used up.';
revoke all on function webhook.inbox_reap(boolean) from public;
grant execute on function webhook.inbox_reap(boolean) to penstock_inbox_executor;
