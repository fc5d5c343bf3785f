-- An event is archived with its last delivery. Lock order: events by number, so that two workers who
-- end deliveries of the same events wait for each other and never in a circle.
create or replace function app.outbox_fold(p_parents bigint[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_done bigint[];
begin
    perform from public.outbox o where o.seq = any (p_parents) order by o.seq for update;
    with ended as (
        update public.outbox o
        set open_deliveries = o.open_deliveries - f.count
        from (select p.seq, count(*) as count from unnest(p_parents) as p (seq) group by p.seq) f
        where o.seq = f.seq
        returning o.seq, o.open_deliveries
    )
    select array_agg(e.seq) into v_done from ended e where e.open_deliveries <= 0;
    if v_done is not null then
        perform app.outbox_archive_rows(v_done, null, 'FANNED');
    end if;
end
$$;

comment on function app.outbox_fold(bigint[]) is
    'Count ended deliveries off their events; archive events that have none left.';
revoke all on function app.outbox_fold(bigint[]) from public;
