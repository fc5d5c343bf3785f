create or replace function public.put_payment_policy(
    p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row penstock_payments.policy;
begin
    select * into v_row from penstock_payments.policy for update;
    v_before := to_jsonb(v_row);
    perform penstock_payments.check_names(p_values, v_before - 'one');
    v_row := jsonb_populate_record(v_row, p_values - 'one');
    update penstock_payments.policy
    set unique_instruction = v_row.unique_instruction, second_approver = v_row.second_approver,
        known_rails_only = v_row.known_rails_only;
    return audit.record('apply', 'penstock_payments.policy',
        jsonb_build_object('before', v_before, 'after', to_jsonb(v_row)), p_reason, p_operator);
end
$$;

comment on function public.put_payment_policy(jsonb, text, text) is
    'Set switches: unique_instruction, second_approver, known_rails_only; audited.';
revoke all on function public.put_payment_policy(jsonb, text, text) from public;
grant execute on function public.put_payment_policy(jsonb, text, text) to penstock_control;
