-- Two weeks of daily partitions ahead, and whole days dropped that are past retention. Both need a
-- strong lock on the parent for a moment: the callers give up quickly and try at the next run. Retention
-- is by days in the default partition as well, though there row by row: never under that lock, which
-- would stop all finishing, but in a call that neither made nor dropped a day. So the tables that one
-- transaction keeps come together.
create or replace function penstock.keep_days(p_tables text[], p_keep interval) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_today date := (penstock.clock() at time zone 'UTC')::date;
    v_before date := least((v_today - p_keep)::date, v_today);
    v_parents oid[] := array(
        select format('public.%I', t.name)::regclass::oid from unnest(p_tables) as t (name));
    v_had oid[] := array(
        select i.inhrelid from pg_inherits i where i.inhparent = any (v_parents) order by 1);
    v_name text;
    v_most integer := 0;
begin
    foreach v_name in array p_tables loop
        perform penstock.make_days(v_name);
    end loop;
    for v_name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = any (v_parents)
          and c.relname ~ '_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_keep
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today
        order by c.relname
    loop
        execute format('drop table public.%I', v_name);
    end loop;
    if v_had <> array(
        select i.inhrelid from pg_inherits i where i.inhparent = any (v_parents) order by 1) then
        return 10000;
    end if;
    foreach v_name in array p_tables loop
        v_most := greatest(
            v_most, penstock.purge_default(v_name, v_before::timestamp at time zone 'UTC'));
    end loop;
    return v_most;
end
$$;

comment on function penstock.keep_days(text[], interval) is
    'Make daily partitions ahead and remove what is past retention; 10000 or more where it should be '
    'called again.';
revoke all on function penstock.keep_days(text[], interval) from public;
