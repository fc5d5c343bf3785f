create or replace function public.intake_pool_open(
    p_pool_id text, p_reason text, p_operator text default null
) returns uuid
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select public.intake_pool_set(p_pool_id,
        jsonb_build_object('is_active', true, 'opens_at', null, 'closes_at', null),
        p_reason, p_operator)
$$;

comment on function public.intake_pool_open(text, text, text) is
    'Sell from now on, without an end; audited.';
revoke all on function public.intake_pool_open(text, text, text) from public;
grant execute on function public.intake_pool_open(text, text, text)
    to penstock_operator, penstock_control;
