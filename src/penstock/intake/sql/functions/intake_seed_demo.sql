-- Only for a pool that has sold nothing: seeding twice must not offer the same sale again.
create or replace function public.intake_seed_demo(
    p_pool_id text default 'demo_concert_2026', p_count int default 1000
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_missing int;
begin
    perform penstock_intake.lock_pool(p_pool_id);
    insert into public.engine_config (pool_id, batch_size, visibility_timeout_sec, max_retries,
                                      is_active)
    values (p_pool_id, 100, 45, 10, true)
    on conflict (pool_id) do nothing;
    v_missing := p_count - (select count(*) from public.inventory_slots s
                            where s.pool_id = p_pool_id);
    if v_missing > 0 then
        perform public.intake_pool_stock(p_pool_id, v_missing, 'demo data');
    end if;
    return greatest(v_missing, 0);
end
$$;

comment on function public.intake_seed_demo(text, int) is
    'The demo pool with its config row and slots; returns how many slots were added.';
revoke all on function public.intake_seed_demo(text, int) from public;
grant execute on function public.intake_seed_demo(text, int) to penstock_operator, penstock_control;
