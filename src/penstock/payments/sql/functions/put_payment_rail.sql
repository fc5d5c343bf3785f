create or replace function public.put_payment_rail(
    p_rail_type text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row public.payment_rails;
begin
    insert into public.payment_rails (rail_type) values (p_rail_type)
    on conflict (rail_type) do nothing;
    select * into v_row from public.payment_rails r where r.rail_type = p_rail_type for update;
    v_before := to_jsonb(v_row);
    perform penstock_payments.check_names(p_values, v_before || '{"codes": {}}');
    v_row := jsonb_populate_record(v_row, p_values - 'rail_type' - 'codes');
    if v_row.idempotency_window <= make_interval(secs => v_row.timeout_ms / 1000.0) then
        raise exception using
            errcode = '22023',
            message = format('rail %s: its key window is not longer than its time limit', p_rail_type),
            hint    = 'a key that is forgotten during a call protects nothing: leave the window out';
    end if;
    update public.payment_rails r
    set idempotent = v_row.idempotent, idempotency_window = v_row.idempotency_window,
        timeout_ms = v_row.timeout_ms, max_concurrency = v_row.max_concurrency,
        status_query = v_row.status_query, on_failed = v_row.on_failed,
        destination_keys = v_row.destination_keys
    where r.rail_type = p_rail_type;
    if (v_before ->> 'idempotent')::boolean and not v_row.idempotent then
        perform penstock_payments.hold_shown(p_rail_type);
    end if;
    if p_values ? 'codes' then
        delete from public.payment_rail_codes c where c.rail_type = p_rail_type;
        insert into public.payment_rail_codes (rail_type, code, class)
        select p_rail_type, c.key, c.value from jsonb_each_text(p_values -> 'codes') c;
    end if;
    return audit.record('apply', 'public.payment_rails', jsonb_build_object(
            'rail_type', p_rail_type, 'before', v_before, 'after', p_values),
        p_reason, p_operator);
end
$$;

comment on function public.put_payment_rail(text, jsonb, text, text) is
    'Set the policy of one rail, and its codes if given (code to class); audited.';
revoke all on function public.put_payment_rail(text, jsonb, text, text) from public;
grant execute on function public.put_payment_rail(text, jsonb, text, text) to penstock_control;
