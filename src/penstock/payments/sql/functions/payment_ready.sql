create or replace function public.payment_ready() returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    select exists (
        select from public.payment_outbox_pending p
        where p.next_attempt_at <= penstock.clock()
        order by p.next_attempt_at limit 1)
$$;

comment on function public.payment_ready() is 'Whether a payment is due; it may still have to wait.';
revoke all on function public.payment_ready() from public;
grant execute on function public.payment_ready() to penstock_payments_executor;
