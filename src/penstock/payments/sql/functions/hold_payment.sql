create or replace function public.hold_payment(
    p_outbox_id uuid, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_phase text;
begin
    select i.phase into v_phase from public.payment_outbox_inflight i
    where i.outbox_id = p_outbox_id and i.held_at is null for update;
    if found then
        perform penstock_payments.write_ends(array[row(p_outbox_id, 'HELD', 0, null, null,
            'OPERATOR_HOLD', left(p_reason, 2000), null)::penstock_payments.ending]);
    else
        v_phase := 'pending';
        -- Not in flight: never due. As the head of its participant it keeps the others waiting.
        update public.payment_outbox_pending p set next_attempt_at = 'infinity'
        where p.outbox_id = p_outbox_id and p.next_attempt_at < 'infinity';
        if not found then
            raise exception using errcode = 'PN505',
                message = format('payment %s is not open, or held already', p_outbox_id);
        end if;
    end if;
    return audit.record('hold', 'public.payment_outbox_registry',
        jsonb_build_object('id', p_outbox_id, 'phase', v_phase), p_reason, p_operator);
end
$$;

comment on function public.hold_payment(uuid, text, text) is
    'Stop an open payment until it is resolved; its participant waits. Audited.';
revoke all on function public.hold_payment(uuid, text, text) from public;
grant execute on function public.hold_payment(uuid, text, text) to penstock_operator;
