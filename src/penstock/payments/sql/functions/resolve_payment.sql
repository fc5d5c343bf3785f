-- dispatched: it was paid. not_paid: it was not, send it (again) if held, allow a replay if failed.
-- failed: it was not paid and is not to be.
create or replace function public.resolve_payment(
    p_outbox_id uuid, p_resolution text, p_reason text, p_operator text default null,
    p_rail_reference text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_from text := 'HELD';
begin
    if p_resolution is null or p_resolution not in ('dispatched', 'not_paid', 'failed') then
        raise exception using errcode = 'PN005',
            message = 'a payment is resolved as dispatched, not_paid or failed';
    end if;
    if not penstock_payments.resolve_held(p_outbox_id, p_resolution, p_rail_reference, null,
                                          p_reason) then
        v_from := 'FAILED';
        perform from penstock_payments.dead_letters d
        where d.outbox_id = p_outbox_id for update;
        if not found or p_resolution = 'failed' then
            raise exception using errcode = 'PN505',
                message = format('payment %s is neither held nor failed', p_outbox_id);
        elsif p_resolution = 'dispatched' then
            perform penstock_payments.write_late_pair(p_outbox_id, p_rail_reference, null,
                                                      'RESOLVED', null);
        else
            update public.payment_outbox_registry r set reconciled_at = penstock.clock()
            where r.outbox_id = p_outbox_id;
        end if;
    end if;
    return audit.record('resolve', 'public.payment_outbox_registry', jsonb_build_object(
            'id', p_outbox_id, 'from', v_from, 'resolution', p_resolution,
            'rail_reference', p_rail_reference,
            'approved_by', penstock_payments.use_approval(p_outbox_id)),
        p_reason, p_operator);
end
$$;

comment on function public.resolve_payment(uuid, text, text, text, text) is
    'Say what became of a held or failed payment; audited.';
revoke all on function public.resolve_payment(uuid, text, text, text, text) from public;
grant execute on function public.resolve_payment(uuid, text, text, text, text)
    to penstock_operator;
