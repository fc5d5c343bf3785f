create or replace function public.approve_payment(
    p_outbox_id uuid, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from public.payment_outbox_registry r where r.outbox_id = p_outbox_id) then
        raise exception using errcode = 'PN011',
            message = format('there is no payment %s', p_outbox_id);
    end if;
    insert into penstock_payments.approvals (outbox_id) values (p_outbox_id);
    return audit.record('approve', 'public.payment_outbox_registry',
        jsonb_build_object('id', p_outbox_id), p_reason, p_operator);
end
$$;

comment on function public.approve_payment(uuid, text, text) is
    'Let another person replay or resolve this payment; audited.';
revoke all on function public.approve_payment(uuid, text, text) from public;
grant execute on function public.approve_payment(uuid, text, text) to penstock_operator;
