-- The reaper of orphaned slots, and the schedules where pg_cron keeps them.
begin;
select plan(14);

select has_function('public', 'reap_orphaned_slots', array['interval'], 'the reaper is there');

select public.intake_pool_stock('tap', 4, 'test');
create temporary table held as
select n, public.claim_resource_and_queue('tap', 'user_' || n) as id from generate_series(1, 4) n;
-- 1: stale, its message lost. 2: stale, message in the queue. 3: stale, message dead. 4: young, its
-- message lost.
update public.inventory_slots set locked_at = now() - interval '1 hour'
where id in (select id from held where n < 4);
select public.intake_route_to_dlq(q.msg_id, q.message, q.read_ct)
from pgmq.q_intake_queue q join held h on q.message ->> 'resource_id' = h.id::text where h.n = 3;
delete from pgmq.q_intake_queue q using held h
where q.message ->> 'resource_id' = h.id::text and h.n in (1, 4);

select is(public.reap_orphaned_slots(interval '10 minutes'), 1, 'the number of reaped slots');
select is((select s.status::text from public.inventory_slots s join held using (id) where n = 1),
    'AVAILABLE', 'a stale slot without a message is on offer again');
select is((select s.locked_by from public.inventory_slots s join held using (id) where n = 1), null,
    'and nobody holds it');
select is((select s.locked_at from public.inventory_slots s join held using (id) where n = 1), null,
    'since no time');
select is((select s.status::text from public.inventory_slots s join held using (id) where n = 2),
    'RESERVED', 'a slot with a message stays reserved');
select is((select s.locked_by from public.inventory_slots s join held using (id) where n = 2),
    'user_2', 'for whoever holds it');
select is((select s.status::text from public.inventory_slots s join held using (id) where n = 3),
    'RESERVED', 'so does one whose message is a dead letter');
select is((select s.status::text from public.inventory_slots s join held using (id) where n = 4),
    'RESERVED', 'and one that is younger than the threshold');
select is(public.reap_orphaned_slots(), 0, 'there is nothing to reap twice');
select isnt(public.claim_resource_and_queue('tap', 'user_5'), null, 'the freed slot can be claimed');

select case when to_regclass('cron.job') is null then skip('no pg_cron here', 2)
    else collect_tap(
        results_eq('select schedule from cron.job where jobname = ''metrics_snapshot''',
            array['* * * * *'], 'metrics each minute'),
        results_eq('select schedule from cron.job where jobname = ''reap_orphaned_slots''',
            array['*/2 * * * *'], 'the reaper every two minutes')) end;
select case when to_regclass('cron.job') is null or to_regnamespace('net') is null
    then skip('no pg_cron with pg_net here', 1)
    else is_empty('select from cron.job where command ~ ''current_setting|Bearer [^'''']''',
        'no job holds a key or reads it from a setting') end;

select * from finish();
rollback;
