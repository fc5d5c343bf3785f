create or replace function public.payment_problem(p_rail_type text, p_payload jsonb) returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select penstock_payments.problem(p_rail_type, p_payload) $$;

comment on function public.payment_problem(text, jsonb) is
    'What keeps a payload from being dispatched over a rail; null if nothing does.';
revoke all on function public.payment_problem(text, jsonb) from public;
grant execute on function public.payment_problem(text, jsonb)
    to penstock_payments_executor, penstock_operator;
