create or replace function public.extend_payment_leases(p_outbox_ids uuid[], p_tokens uuid[])
returns table (outbox_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_until timestamptz := penstock.clock() + make_interval(secs => (
        select c.lease_s from penstock.queue_config c where c.queue = 'payments'));
begin
    return query
        with kept as (
            update public.payment_outbox_inflight i
            set lease_expires_at = greatest(i.lease_expires_at, v_until)
            from unnest(p_outbox_ids, p_tokens) as g (id, token)
            where i.outbox_id = any (array[g.id]) and i.lease_token = g.token
            returning i.outbox_id
        )
        select g.id from unnest(p_outbox_ids) as g (id)
        where not exists (select from kept k where k.outbox_id = g.id);
end
$$;

comment on function public.extend_payment_leases(uuid[], uuid[]) is
    'Prolong leases still held; returns the payments that are lost.';
revoke all on function public.extend_payment_leases(uuid[], uuid[]) from public;
grant execute on function public.extend_payment_leases(uuid[], uuid[])
    to penstock_payments_executor;
