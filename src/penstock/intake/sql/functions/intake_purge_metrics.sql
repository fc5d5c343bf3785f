create or replace function public.intake_purge_metrics(
    p_keep interval default '7 days', p_limit int default 10000
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_count int;
begin
    delete from public.engine_metrics m
    where m.id in (
        select o.id from public.engine_metrics o
        where o.captured_at < penstock.clock() - coalesce(p_keep, interval '7 days')
        order by o.captured_at limit least(greatest(p_limit, 1), 100000) for update skip locked);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function public.intake_purge_metrics(interval, int) is
    'Remove metrics older than p_keep, at most p_limit rows; returns how many.';
revoke all on function public.intake_purge_metrics(interval, int) from public;
grant execute on function public.intake_purge_metrics(interval, int)
    to penstock_intake_executor, penstock_operator;
