-- A day whose rows already went to the default partition stays there; the days after it do not. What is
-- append-only has a trigger against TRUNCATE, which belongs to one table: each day gets its own.
create or replace function penstock.make_days(p_table text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_today date := (penstock.clock() at time zone 'UTC')::date;
    v_guard text := p_table || '_no_truncate';
    v_guarded boolean := exists (
        select from pg_trigger t
        where t.tgrelid = format('public.%I', p_table)::regclass and t.tgname = v_guard);
    v_day date;
    v_part text;
begin
    for v_day in select v_today + i from generate_series(0, 14) as i loop
        v_part := p_table || '_' || to_char(v_day, 'YYYYMMDD');
        continue when to_regclass('public.' || quote_ident(v_part)) is not null;
        begin
            execute format(
                'create table public.%I partition of public.%I for values from (%L) to (%L)',
                v_part, p_table, v_day::timestamp at time zone 'UTC',
                (v_day + 1)::timestamp at time zone 'UTC');
        exception when check_violation then
            continue;
        end;
        execute format('alter table public.%I enable row level security', v_part);
        execute format('comment on table public.%I is %L', v_part, 'One day of ' || p_table);
        continue when not v_guarded;
        execute format(
            'create trigger %I before truncate on public.%I '
            'for each statement execute function penstock.refuse_change()', v_guard, v_part);
        execute format('alter table public.%I enable always trigger %I', v_part, v_guard);
    end loop;
end
$$;

comment on function penstock.make_days(text) is 'Make the daily partitions of the next two weeks.';
revoke all on function penstock.make_days(text) from public;
