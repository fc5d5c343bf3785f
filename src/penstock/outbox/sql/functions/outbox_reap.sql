-- A lease that ended counts as an attempt: an event that kills its worker must not do so for ever.
-- With half of its attempts used up it is a suspect: it waits until outbox_bring_suspect lets it run
-- as the only one of its kind. Before that it comes back at once.
create or replace function app.outbox_reap(p_from_zero boolean default false) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_max integer := (select c.max_attempts from penstock.queue_config c where c.queue = 'outbox');
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := penstock.time_floor('penstock.outbox_lease');
    v_count integer;
    v_over bigint[];
begin
    -- Before any event: alerts look at the routes, and whoever takes a route away locks those first.
    lock table public.outbox_routes in access share mode;
    if p_from_zero then
        v_floor := '-infinity';
    end if;
    perform app.outbox_split_expired(v_floor, v_now);
    with expired as materialized (
        select o.ctid, o.processing_token as token
        from public.outbox o
        where o.lease_expires_at > v_floor and o.lease_expires_at <= v_now
        order by o.lease_expires_at
        limit 1000
        for update skip locked
    ), back as (
        update public.outbox o
        set pos = case when 2 * o.attempts < app.outbox_attempts_max(o.relay, v_max)
                then nextval('penstock.outbox_next') end,
            next_attempt_at = case when o.attempts < app.outbox_attempts_max(o.relay, v_max)
                    and 2 * o.attempts >= app.outbox_attempts_max(o.relay, v_max)
                then v_now end,
            dead_at = case when o.attempts >= app.outbox_attempts_max(o.relay, v_max) then v_now end,
            processing_token = null, lease_owner = null, lease_expires_at = null,
            error_code = case when o.attempts >= app.outbox_attempts_max(o.relay, v_max) then 'ZOMBIE_LIMIT'
                when 2 * o.attempts >= app.outbox_attempts_max(o.relay, v_max) then 'ZOMBIE_SUSPECT'
                else 'ZOMBIE' end,
            error = 'the worker died or lost its lease'
        from expired e
        where o.ctid = e.ctid
        returning o.seq, o.id, e.token, o.lease_epoch, o.dead_at
    ), kept as (
        insert into public.outbox_attempts
            (seq, event_id, lease_token, lease_epoch, outcome, error_code)
        select b.seq, b.id, b.token, b.lease_epoch, 'ZOMBIE', 'ZOMBIE' from back b
    )
    select count(*), array_agg(b.seq) filter (where b.dead_at is not null) into v_count, v_over
    from back b;
    if v_over is not null then
        perform app.outbox_died(v_over);
    end if;
    return v_count;
end
$$;

comment on function app.outbox_reap(boolean) is
    'Bring events back whose lease has ended; dead when their attempts are used up.';
revoke all on function app.outbox_reap(boolean) from public;
grant execute on function app.outbox_reap(boolean) to penstock_outbox_executor;
