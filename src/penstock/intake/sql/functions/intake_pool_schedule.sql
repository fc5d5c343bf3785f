create or replace function public.intake_pool_schedule(
    p_pool_id text, p_opens_at timestamptz, p_closes_at timestamptz, p_reason text,
    p_operator text default null
) returns uuid
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select public.intake_pool_set(p_pool_id,
        jsonb_build_object('is_active', true, 'opens_at', p_opens_at, 'closes_at', p_closes_at),
        p_reason, p_operator)
$$;

comment on function
    public.intake_pool_schedule(text, timestamptz, timestamptz, text, text) is
    'Sell between two times; NULL means without a beginning or an end. Audited.';
revoke all on function
    public.intake_pool_schedule(text, timestamptz, timestamptz, text, text) from public;
grant execute on function
    public.intake_pool_schedule(text, timestamptz, timestamptz, text, text)
    to penstock_operator, penstock_control;
