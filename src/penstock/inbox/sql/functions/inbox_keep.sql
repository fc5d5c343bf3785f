-- The scheduled part of housekeeping: old successes to the archive, counters folded, memory past
-- its time forgotten. In steps, so that no run holds many locks; what is left waits for the next
-- run.
create or replace function webhook.inbox_keep(p_batch integer default 5000)
returns table (archived integer, forgotten integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_keep interval := (select c.retention from penstock.queue_config c where c.queue = 'inbox');
begin
    archived := webhook.archive_rows(array(
        select e.id from public.webhook_events e
        where e.processed_at is not null and e.processed_at < penstock.clock() - interval '1 hour'
        order by e.processed_at
        limit p_batch
        for update skip locked), 'SUCCESS');
    with gone as (
        delete from webhook.memory m
        where m.ctid = any (array(
            select k.ctid from webhook.memory k where k.forget_at < penstock.clock()
            order by k.forget_at limit p_batch for update skip locked))
        returning m.webhook_id, m.event_id
    ), effects as (
        delete from public.webhook_effects f using gone g
        where f.webhook_id = g.webhook_id and f.event_id = g.event_id
    )
    select count(*) into forgotten from gone;
    delete from webhook.bodies b
    where b.ctid = any (array(
        select k.ctid from webhook.bodies k
        where k.received_at < penstock.clock() - v_keep
          and not exists (select from public.webhook_events e where e.delivery_id = k.delivery_id)
        order by k.received_at limit p_batch for update skip locked));
    with folded as (
        delete from webhook.tally t
        where t.seq = any (array(
            select k.seq from webhook.tally k order by k.seq limit 100000 for update skip locked))
        returning t.metric, t.webhook_id, t.label, t.count
    )
    insert into webhook.tally (metric, webhook_id, label, count)
    select f.metric, f.webhook_id, f.label, sum(f.count) from folded f group by 1, 2, 3;
    return next;
end
$$;

comment on function webhook.inbox_keep(integer) is
    'Archive what is done, forget what may be forgotten, fold the counters.';
revoke all on function webhook.inbox_keep(integer) from public;
grant execute on function webhook.inbox_keep(integer) to penstock_inbox_executor;
