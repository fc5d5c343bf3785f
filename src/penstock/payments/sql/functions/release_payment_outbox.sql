create or replace function public.release_payment_outbox(p_outbox_ids uuid[], p_tokens uuid[])
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    v_ends penstock_payments.ending[];
begin
    v_ends := array(
        with mine as materialized (
            select i.outbox_id from public.payment_outbox_inflight i
            join unnest(p_outbox_ids, p_tokens) as g (id, token)
                on i.outbox_id = any (array[g.id]) and i.lease_token = g.token
            where i.phase = 'claimed'
            for update of i
        )
        select row(m.outbox_id, 'RELEASED', 0, null, null, 'RELEASED', null, null
               )::penstock_payments.ending
        from mine m);
    perform penstock_payments.write_ends(v_ends);
    return cardinality(v_ends);
end
$$;

comment on function public.release_payment_outbox(uuid[], uuid[]) is
    'Give payments back that were not sent; the attempt does not count.';
revoke all on function public.release_payment_outbox(uuid[], uuid[]) from public;
grant execute on function public.release_payment_outbox(uuid[], uuid[])
    to penstock_payments_executor;
