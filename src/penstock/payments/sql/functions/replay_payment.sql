-- Sending a key that the rail has forgotten pays again, so a replay beyond the rail's window, or on a
-- rail without keys, is refused until somebody has found out that nothing was paid.
create or replace function public.replay_payment(
    p_outbox_id uuid, p_operator text, p_reason text
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_dead penstock_payments.dead_letters;
    v_registry public.payment_outbox_registry;
begin
    select * into v_dead from penstock_payments.dead_letters d
    where d.outbox_id = p_outbox_id for update;
    if not found then
        raise exception using errcode = 'PN505',
            message = format('payment %s has not failed, or was given up', p_outbox_id),
            hint    = 'what is held is resolved: resolve_payment';
    end if;
    select * into v_registry from public.payment_outbox_registry r
    where r.outbox_id = p_outbox_id for update;
    if v_registry.first_sent_at is not null and v_registry.reconciled_at is null
       and not coalesce(penstock_payments.knows_key(
           v_registry.rail_type, v_registry.first_sent_at, penstock.clock()), false)
    then
        raise exception using errcode = 'PN506',
            message = format('payment %s may be paid twice by a replay', p_outbox_id),
            detail  = format('rail %s no longer knows the key that was first sent at %s',
                             v_registry.rail_type, v_registry.first_sent_at),
            hint    = 'ask the rail whether it was paid, then resolve_payment with '
                      'not_paid or dispatched';
    end if;
    perform penstock_payments.requeue_dead(p_outbox_id);
    return audit.record('replay', 'public.payment_outbox_registry', jsonb_build_object(
            'id', p_outbox_id, 'error_code', v_dead.error_code,
            'replay_count', v_registry.replay_count + 1,
            'reconciled_at', v_registry.reconciled_at,
            'approved_by', penstock_payments.use_approval(p_outbox_id)),
        p_reason, p_operator);
end
$$;

comment on function public.replay_payment(uuid, text, text) is
    'Give a failed payment a new cycle of attempts under its old ids; audited.';
revoke all on function public.replay_payment(uuid, text, text) from public;
grant execute on function public.replay_payment(uuid, text, text) to penstock_operator;
