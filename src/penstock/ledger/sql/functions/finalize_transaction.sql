create or replace function public.finalize_transaction(p_payload jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_answer record;
begin
    select * into v_answer from public.finalize_many(array[p_payload]);
    case v_answer.outcome
        when 'conflict' then
            raise exception using errcode = 'PN305',
                message = format('resource %s is another reservation''s', v_answer.resource_id);
        when 'cancelled' then
            raise exception using errcode = 'PN306',
                message = format('reservation %s was cancelled', v_answer.reservation_id);
        when 'invalid' then
            raise exception using errcode = '22023',
                message = 'the payload needs resource_id (a UUID), pool_id and user_id';
        else
            return;
    end case;
end
$$;

comment on function public.finalize_transaction(jsonb) is
    'Confirm one reservation; again for the same owner is no error. Raises PN305 if the resource '
    'is another''s, PN306 if the reservation was cancelled, 22023 if a field is missing.';
revoke all on function public.finalize_transaction(jsonb) from public;
grant execute on function public.finalize_transaction(jsonb)
    to penstock_ledger_writer, service_role;
