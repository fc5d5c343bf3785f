-- Keep two weeks of daily partitions ahead, and drop whole days that are past retention. Dropping
-- needs a strong lock on the parent for a moment: it gives up quickly and tries at the next run.
-- A day whose rows already went to the default partition stays there; the days after it do not.
create or replace function app.outbox_partitions() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    v_today date := (penstock.clock() at time zone 'UTC')::date;
    v_keep interval := (select c.retention from penstock.queue_config c where c.queue = 'outbox');
    v_table text;
    v_day date;
    v_part text;
begin
    foreach v_table in array array['outbox_archive', 'outbox_attempts'] loop
        for v_day in select v_today + i from generate_series(0, 14) as i loop
            v_part := v_table || '_' || to_char(v_day, 'YYYYMMDD');
            continue when to_regclass('public.' || quote_ident(v_part)) is not null;
            begin
                execute format(
                    'create table public.%I partition of public.%I for values from (%L) to (%L)',
                    v_part, v_table, v_day::timestamp at time zone 'UTC',
                    (v_day + 1)::timestamp at time zone 'UTC');
            exception when check_violation then
                continue;
            end;
            execute format('alter table public.%I enable row level security', v_part);
            execute format('comment on table public.%I is %L', v_part, 'One day of ' || v_table);
            continue when v_table <> 'outbox_attempts';
            execute format(
                'create trigger outbox_attempts_no_truncate before truncate on public.%I '
                'for each statement execute function penstock.refuse_change()', v_part);
            execute format(
                'alter table public.%I enable always trigger outbox_attempts_no_truncate', v_part);
        end loop;
        for v_part in
            select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = format('public.%I', v_table)::regclass
              and c.relname ~ '_[0-9]{8}$'
              and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - v_keep
              and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today
        loop
            execute format('drop table public.%I', v_part);
        end loop;
    end loop;
end
$$;

comment on function app.outbox_partitions() is
    'Create the partitions of the coming days and drop those past retention.';
revoke all on function app.outbox_partitions() from public;
grant execute on function app.outbox_partitions() to penstock_outbox_executor;
