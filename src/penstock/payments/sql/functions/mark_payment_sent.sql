-- The last look before money moves: only the holder of the lease may send, and the lease then covers
-- the rail's time limit. Where the rail has forgotten the key since it was first shown, sending again
-- would pay again: such a payment is held instead.
create or replace function public.mark_payment_sent(p_outbox_ids uuid[], p_tokens uuid[])
returns table (outbox_id uuid, lease_expires_at timestamptz, lease_s double precision)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
    c_margin constant interval := interval '10 seconds';
    v_count integer;
    v_held penstock_payments.ending[];
begin
    return query
        update public.payment_outbox_inflight i
        set phase = 'sent', sent_at = v_now, first_sent_at = coalesce(i.first_sent_at, v_now),
            lease_expires_at = greatest(i.lease_expires_at, v_now + c_margin + make_interval(
                secs => coalesce((select r.timeout_ms from public.payment_rails r
                                  where r.rail_type = i.rail_type), 30000) / 1000.0))
        from unnest(p_outbox_ids, p_tokens) as g (id, token)
        where i.outbox_id = any (array[g.id]) and i.lease_token = g.token and i.late_at is null
          and (i.first_sent_at is null
               or coalesce(penstock_payments.knows_key(i.rail_type, i.first_sent_at, v_now), true))
        returning i.outbox_id, i.lease_expires_at,
                  extract(epoch from i.lease_expires_at - v_now)::double precision;
    get diagnostics v_count = row_count;
    if v_count < cardinality(p_outbox_ids) then
        -- Those that were given leave just now are `sent`, and not looked at again.
        with held as (
            update public.payment_outbox_inflight i
            set held_at = v_now, held_token = i.lease_token, lease_token = null,
                lease_expires_at = null, error_code = 'KEY_WINDOW_OVER',
                error_message = 'the rail no longer knows the key of an earlier attempt'
            from unnest(p_outbox_ids, p_tokens) as g (id, token)
            where i.outbox_id = any (array[g.id]) and i.lease_token = g.token
              and i.phase = 'claimed'
              and not penstock_payments.knows_key(i.rail_type, i.first_sent_at, v_now)
            returning i.outbox_id, i.error_code, i.error_message
        )
        select array_agg(row(h.outbox_id, 'HELD', null, null, null, h.error_code,
                             h.error_message, null)::penstock_payments.ending)
        into v_held from held h;
        perform penstock_payments.alert_ends(v_held);
    end if;
end
$$;

comment on function public.mark_payment_sent(uuid[], uuid[]) is
    'Just before the rail is called: returns those that may be sent; the others must not be.';
revoke all on function public.mark_payment_sent(uuid[], uuid[]) from public;
grant execute on function public.mark_payment_sent(uuid[], uuid[]) to penstock_payments_executor;
