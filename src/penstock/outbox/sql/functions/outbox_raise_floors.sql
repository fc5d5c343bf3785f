-- What a plain snapshot shows holds each floor down: a row under claim is still ready to it, one that
-- is being reaped or brought back is still leased or waiting.
create or replace function app.outbox_raise_floors() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint := pg_sequence_last_value('penstock.outbox_wm');
    v_joint int8multirange := app.outbox_joint();
    v_due timestamptz := penstock.time_floor('penstock.outbox_due');
    v_lease timestamptz := penstock.time_floor('penstock.outbox_lease');
    -- No floor passes the clock, so what lies ahead of it need not be looked through: under a held
    -- snapshot that is every lease of the last half minute, ended or not.
    v_now timestamptz := penstock.clock();
begin
    perform penstock.raise_watermark('outbox', (
        select o.pos from public.outbox o
        where o.pos > v_wm and not v_joint @> o.seq order by o.pos limit 1));
    perform penstock.raise_time_floor('penstock.outbox_due', (
        select o.next_attempt_at from public.outbox o
        where o.next_attempt_at > v_due and o.next_attempt_at <= v_now
        order by o.next_attempt_at limit 1), interval '1 minute');
    perform penstock.raise_time_floor('penstock.outbox_lease', (
        select min(l.ends_at) from (
            (select o.lease_expires_at as ends_at from public.outbox o
             where o.lease_expires_at > v_lease and o.lease_expires_at <= v_now
             order by o.lease_expires_at limit 1)
            union all
            (select j.expires_at from public.outbox_joint_leases j
             where j.expires_at > v_lease and j.expires_at <= v_now
             order by j.expires_at limit 1)) l), interval '1 second');
end
$$;

comment on function app.outbox_raise_floors() is
    'Move the watermark and the time floors up to just below what is still there.';
revoke all on function app.outbox_raise_floors() from public;
