-- Without a product the job's first word names it, if that is one that has an executor; a job of no
-- product is anybody's. For installers, who are the owner: an operator's change has a reason and an
-- audit row, see put_schedule.
create or replace function penstock.put_job(
    p_job text, p_every_s integer, p_product text default null
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into penstock.schedule (job, every_s, product)
    select p_job, p_every_s, coalesce(p_product, (
        select w.product from (select split_part(p_job, '_', 1) as product) w
        where w.product in ('outbox', 'inbox', 'intake', 'payments')))
    on conflict (job) do nothing
$$;

comment on function penstock.put_job(text, integer, text) is
    'Schedule a job if it is not scheduled yet; an operator''s own interval is kept.';
revoke all on function penstock.put_job(text, integer, text) from public;
