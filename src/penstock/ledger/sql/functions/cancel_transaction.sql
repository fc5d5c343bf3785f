create or replace function public.cancel_transaction(p_reservation_id uuid) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_reservation_id is null then
        raise exception using errcode = '22023', message = 'which reservation?';
    end if;
    insert into public.reservation_outcomes (reservation_id, outcome, at)
    values (p_reservation_id, 'CANCELLED', penstock.clock())
    on conflict do nothing;
    return (select o.outcome from public.reservation_outcomes o
            where o.reservation_id = p_reservation_id);
end
$$;

comment on function public.cancel_transaction(uuid) is
    'See to it that a reservation is never confirmed, unless it is: CANCELLED or CONFIRMED.';
revoke all on function public.cancel_transaction(uuid) from public;
grant execute on function public.cancel_transaction(uuid) to penstock_ledger_writer, service_role;
