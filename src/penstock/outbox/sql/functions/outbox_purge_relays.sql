-- Only what was sent, and never before its time. In batches: a run that was missed is caught up.
create or replace function app.outbox_purge_relays(p_keep interval default interval '7 days')
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before timestamptz := penstock.clock() - greatest(p_keep, interval '7 days');
    v_name text;
    v_count integer;
    v_total integer := 0;
begin
    for v_name in select r.name from public.outbox_relays r order by r.name loop
        execute format(
            'delete from %1$s where ctid = any (array(select ctid from %1$s '
            'where status = ''SENT'' and sent_at < $1 order by sent_at limit 10000 '
            'for update skip locked))', v_name::regclass) using v_before;
        get diagnostics v_count = row_count;
        v_total := v_total + v_count;
    end loop;
    return v_total;
end
$$;

comment on function app.outbox_purge_relays(interval) is
    'Delete rows of relay tables that were sent more than seven days ago; returns how many.';
revoke all on function app.outbox_purge_relays(interval) from public;
grant execute on function app.outbox_purge_relays(interval) to penstock_outbox_executor;
