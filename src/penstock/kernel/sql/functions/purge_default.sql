-- Rows of days that had no partition. Of a table that is append-only they go as its old days do, and
-- nothing else: the trigger is away inside this transaction only, under a lock that lets nobody write.
create or replace function penstock.purge_default(p_table text, p_before timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_default text := p_table || '_default';
    v_guard text := p_table || '_append_only';
    v_time text := (
        select a.attname from pg_partitioned_table p
        join pg_attribute a on a.attrelid = p.partrelid and a.attnum = p.partattrs[0]
        where p.partrelid = format('public.%I', p_table)::regclass);
    v_guarded boolean := exists (
        select from pg_trigger t
        where t.tgrelid = format('public.%I', v_default)::regclass and t.tgname = v_guard);
    v_old boolean;
    v_count integer;
begin
    execute format('select exists (select from public.%1$I where %2$I < $1)', v_default, v_time)
    into v_old using p_before;
    if not v_old then
        return 0;
    end if;
    if v_guarded then
        execute format('alter table public.%I disable trigger %I', v_default, v_guard);
    end if;
    execute format(
        'delete from public.%1$I where ctid = any (array(select ctid from public.%1$I '
        'where %2$I < $1 order by %2$I limit 10000 for update skip locked))', v_default, v_time)
    using p_before;
    get diagnostics v_count = row_count;
    if v_guarded then
        execute format('alter table public.%I enable always trigger %I', v_default, v_guard);
    end if;
    return v_count;
end
$$;

comment on function penstock.purge_default(text, timestamptz) is
    'Delete rows of a default partition from before a day, at most 10000; returns how many.';
revoke all on function penstock.purge_default(text, timestamptz) from public;
