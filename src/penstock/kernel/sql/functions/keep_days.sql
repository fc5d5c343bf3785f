-- Two weeks of daily partitions ahead, and whole days dropped that are past retention. Dropping needs a
-- strong lock on the parent for a moment: the callers give up quickly and try at the next run. Retention
-- is by days in the default partition as well, though there row by row.
create or replace function penstock.keep_days(p_table text, p_keep interval) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_today date := (penstock.clock() at time zone 'UTC')::date;
    v_before date := least((v_today - p_keep)::date, v_today);
    v_part text;
begin
    perform penstock.make_days(p_table);
    for v_part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = format('public.%I', p_table)::regclass
          and c.relname ~ '_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_keep
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today
    loop
        execute format('drop table public.%I', v_part);
    end loop;
    return penstock.purge_default(p_table, v_before::timestamp at time zone 'UTC');
end
$$;

comment on function penstock.keep_days(text, interval) is
    'Make daily partitions ahead and remove what is past retention; rows of the default partition removed.';
revoke all on function penstock.keep_days(text, interval) from public;
