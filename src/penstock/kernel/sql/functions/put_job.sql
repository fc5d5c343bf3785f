create or replace function penstock.put_job(p_job text, p_every_s integer) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into penstock.schedule (job, every_s) values (p_job, p_every_s)
    on conflict (job) do nothing
$$;

comment on function penstock.put_job(text, integer) is
    'Schedule a job if it is not scheduled yet; an operator''s own interval is kept.';
revoke all on function penstock.put_job(text, integer) from public;
grant execute on function penstock.put_job(text, integer) to penstock_operator;
