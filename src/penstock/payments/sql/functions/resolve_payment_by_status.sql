-- For workers, and only where the rail can be asked what became of a payment. A hold that an operator
-- placed is the operator's to lift.
create or replace function public.resolve_payment_by_status(
    p_outbox_id uuid, p_resolution text, p_rail_reference text default null,
    p_rail_code text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_resolution is null or p_resolution not in ('dispatched', 'not_paid', 'failed') then
        raise exception using errcode = 'PN005',
            message = 'a payment is resolved as dispatched, not_paid or failed';
    end if;
    if not exists (
        select from public.payment_outbox_inflight i
        join public.payment_rails r on r.rail_type = i.rail_type
        where i.outbox_id = p_outbox_id and i.held_at is not null and r.status_query
          and i.error_code <> 'OPERATOR_HOLD') then
        return false;
    end if;
    if not penstock_payments.resolve_held(p_outbox_id, p_resolution, p_rail_reference, p_rail_code,
                                          'status query') then
        return false;
    end if;
    perform audit.record('resolve', 'public.payment_outbox_registry', jsonb_build_object(
            'id', p_outbox_id, 'from', 'HELD', 'resolution', p_resolution,
            'rail_reference', p_rail_reference), 'status query');
    return true;
end
$$;

comment on function public.resolve_payment_by_status(uuid, text, text, text) is
    'Resolve a held payment by what its rail answers; false if it is not to be resolved so.';
revoke all on function public.resolve_payment_by_status(uuid, text, text, text) from public;
grant execute on function public.resolve_payment_by_status(uuid, text, text, text)
    to penstock_payments_executor;
