create or replace function penstock_intake.count_stock() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into penstock_intake.pool_stock as s (pool_id, stocked)
    select a.pool_id, count(*) from added a group by a.pool_id order by a.pool_id
    on conflict (pool_id) do update set stocked = s.stocked + excluded.stocked;
    perform penstock_intake.make_mark(a.pool_id)
    from (select distinct pool_id from added) a
    where not exists (select from penstock_intake.pool_mark m where m.pool_id = a.pool_id);
    return null;
end
$$;

comment on function penstock_intake.count_stock() is
    'Trigger: keeps the number of slots that a pool was given, and gives a new pool its watermark.';
revoke all on function penstock_intake.count_stock() from public;
