-- One audited way to write a pool's settings, by name. Keys that are absent keep their value.
create or replace function public.intake_pool_set(
    p_pool_id text, p_settings jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_unknown text;
begin
    select string_agg(k, ', ' order by k) into v_unknown
    from jsonb_object_keys(p_settings) k
    where k <> all (array['batch_size', 'visibility_timeout_sec', 'max_retries', 'is_active',
        'validation_webhook_url', 'commit_rpc_name', 'commit_webhook_url', 'opens_at', 'closes_at',
        'max_per_user', 'hold_s']);
    if v_unknown is not null or coalesce(p_pool_id, '') = '' then
        raise exception using errcode = '22023',
            message = format('pool %L: unknown settings: %s', p_pool_id,
                             coalesce(v_unknown, 'none'));
    end if;
    insert into public.engine_config (pool_id) values (p_pool_id) on conflict do nothing;
    insert into public.intake_pools (pool_id) values (p_pool_id) on conflict do nothing;
    update public.engine_config c
    set (batch_size, visibility_timeout_sec, max_retries, is_active, validation_webhook_url,
         commit_rpc_name, commit_webhook_url) = (
        select n.batch_size, n.visibility_timeout_sec, n.max_retries, n.is_active,
               n.validation_webhook_url, n.commit_rpc_name, n.commit_webhook_url
        from jsonb_populate_record(c, p_settings - 'pool_id') n)
    where c.pool_id = p_pool_id;
    update public.intake_pools i
    set (opens_at, closes_at, max_per_user, hold_s, updated_at) = (
        select n.opens_at, n.closes_at, n.max_per_user, n.hold_s, penstock.clock()
        from jsonb_populate_record(i, p_settings - 'pool_id') n)
    where i.pool_id = p_pool_id;
    return audit.record('pool_set', 'public.engine_config',
        jsonb_build_object('pool_id', p_pool_id, 'settings', p_settings), p_reason, p_operator);
end
$$;

comment on function public.intake_pool_set(text, jsonb, text, text) is
    'Create or change a pool''s settings (columns of engine_config and intake_pools); audited.';
revoke all on function public.intake_pool_set(text, jsonb, text, text) from public;
grant execute on function public.intake_pool_set(text, jsonb, text, text)
    to penstock_operator, penstock_control;
