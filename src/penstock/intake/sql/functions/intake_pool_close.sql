create or replace function public.intake_pool_close(
    p_pool_id text, p_reason text, p_operator text default null
) returns uuid
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select public.intake_pool_set(p_pool_id, '{"is_active": false}', p_reason, p_operator)
$$;

comment on function public.intake_pool_close(text, text, text) is
    'Sell no more from this pool; what is reserved is still confirmed. Audited.';
revoke all on function public.intake_pool_close(text, text, text) from public;
grant execute on function public.intake_pool_close(text, text, text)
    to penstock_operator, penstock_control;
