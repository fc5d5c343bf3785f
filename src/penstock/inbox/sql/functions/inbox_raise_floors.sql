-- What a plain snapshot shows holds each floor down: a row under claim is still ready to it, one
-- that is being reaped or brought back is still leased or waiting.
create or replace function webhook.inbox_raise_floors() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_wm bigint := pg_sequence_last_value('penstock.inbox_wm');
    v_due timestamptz := penstock.time_floor('penstock.inbox_due');
    v_lease timestamptz := penstock.time_floor('penstock.inbox_lease');
    -- No floor passes the clock, so what lies ahead of it need not be looked through: under a held
    -- snapshot that is every lease of the last half minute, ended or not.
    v_now timestamptz := penstock.clock();
begin
    perform penstock.raise_watermark('inbox', (
        select e.pos from public.webhook_events e where e.pos > v_wm order by e.pos limit 1));
    perform penstock.raise_time_floor('penstock.inbox_due', (
        select e.next_attempt_at from public.webhook_events e
        where e.next_attempt_at > v_due and e.next_attempt_at <= v_now
        order by e.next_attempt_at limit 1), interval '1 minute');
    perform penstock.raise_time_floor('penstock.inbox_lease', (
        select e.lease_expires_at from public.webhook_events e
        where e.lease_expires_at > v_lease and e.lease_expires_at <= v_now
        order by e.lease_expires_at limit 1), interval '1 second');
end
$$;

comment on function webhook.inbox_raise_floors() is
    'Move the watermark and the time floors up to just below what is still there.';
revoke all on function webhook.inbox_raise_floors() from public;
