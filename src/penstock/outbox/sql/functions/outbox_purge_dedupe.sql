-- In batches, so that no publish waits long for a row that goes.
create or replace function app.outbox_purge_dedupe(p_keep interval default interval '30 days')
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before timestamptz := penstock.clock() - greatest(p_keep, interval '1 day');
    v_count integer;
begin
    delete from public.outbox_dedupe d
    where d.ctid = any (array(
        select o.ctid from public.outbox_dedupe o
        where o.created_at < v_before
        order by o.created_at limit 10000
        for update skip locked));
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_purge_dedupe(interval) is
    'Forget dedupe keys past their time, at most 10000; returns how many.';
revoke all on function app.outbox_purge_dedupe(interval) from public;
grant execute on function app.outbox_purge_dedupe(interval) to penstock_outbox_executor;
