-- Only what no rail has seen. The sequence number stays used: the stream has no gap, and the registry
-- says why nothing was dispatched under it.
create or replace function public.cancel_payment(
    p_outbox_id uuid, p_reason text, p_operator text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from public.payment_outbox_pending p
    where p.outbox_id = (
        select q.outbox_id from public.payment_outbox_pending q
        where q.outbox_id = p_outbox_id and q.first_sent_at is null
        for update skip locked)
      -- Attempts by hand leave no first_sent_at: a dispatch that was neither released nor reaped.
      and not exists (
        select from public.payment_outbox_attempts a
        where a.outbox_id = p_outbox_id and a.state = 'DISPATCHED');
    if not found then
        return false;
    end if;
    update public.payment_outbox_registry r
    set terminal_state = 'CANCELLED', terminal_at = penstock.clock()
    where r.outbox_id = p_outbox_id;
    perform audit.record('cancel', 'public.payment_outbox_registry',
        jsonb_build_object('id', p_outbox_id), p_reason, p_operator);
    return true;
end
$$;

comment on function public.cancel_payment(uuid, text, text) is
    'Withdraw a payment that was never sent; false if it was, or is in flight. Audited.';
revoke all on function public.cancel_payment(uuid, text, text) from public;
grant execute on function public.cancel_payment(uuid, text, text) to penstock_operator;
