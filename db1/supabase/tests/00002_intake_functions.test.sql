-- Claiming, the queue's wrappers, dead letters and metrics.
begin;
select plan(26);

-- Pools of the test's own, so that seeded ones do not count. Depths count from here on.
select public.intake_pool_stock('tap', 3, 'test');
select public.intake_pool_stock('tap_idle', 2, 'test');
update public.engine_config set is_active = false where pool_id = 'tap_idle';
create temporary table before_it as select queue_length from pgmq.metrics('intake_queue');
create temporary table claimed (n int, id uuid);

select has_function('public', f, 'function ' || f)
from unnest(array['claim_resource_and_queue', 'intake_queue_read', 'intake_queue_delete',
    'intake_queue_send', 'intake_route_to_dlq', 'snapshot_engine_metrics']) as f;

insert into claimed values (1, public.claim_resource_and_queue('tap', 'user_1'));
select isnt((select id from claimed where n = 1), null, 'a claim returns a uuid');
select is((select status::text from public.inventory_slots s join claimed c using (id)), 'RESERVED',
    'the claimed slot is reserved');
select is((select locked_by from public.inventory_slots s join claimed c using (id)), 'user_1',
    'and for the one who claimed it');
select isnt((select locked_at from public.inventory_slots s join claimed c using (id)), null,
    'and since when is known');
select is((select queue_length from pgmq.metrics('intake_queue')),
          (select queue_length + 1 from before_it), 'a message is in the queue');
select is((select q.message - 'reservation_id' from pgmq.q_intake_queue q join claimed c
           on q.message ->> 'resource_id' = c.id::text),
          (select jsonb_build_object('pool_id', 'tap', 'resource_id', id, 'user_id', 'user_1',
                                     'state', 'queued') from claimed),
    'the message says which slot, of which pool, for whom');

insert into claimed
select n, public.claim_resource_and_queue('tap', 'user_' || n) from generate_series(2, 3) as n;
select is((select count(distinct id)::int from claimed), 3, 'each claim gets a slot of its own');
select is(public.claim_resource_and_queue('tap', 'user_4'), null, 'NULL when sold out');
select is((select queue_length from pgmq.metrics('intake_queue')),
          (select queue_length + 3 from before_it), 'as many messages as claims');

create temporary table readings as
select r.* from public.intake_queue_read(30, 1000) r where r.message ->> 'pool_id' = 'tap';
select is((select count(*)::int from readings), 3, 'reading returns the messages');
select is((select count(*)::int from readings where read_ct = 1), 3, 'and counts that');
select is((select count(*)::int from public.intake_queue_read(30, 1000) r
           where r.message ->> 'pool_id' = 'tap'), 0, 'what is read is hidden for a while');

select cmp_ok(public.intake_queue_send('{"pool_id": "tap_sent"}'), '>', 0::bigint,
    'sending returns the message''s number');

create temporary table routed as
select r.msg_id, public.intake_route_to_dlq(r.msg_id, r.message, r.read_ct) as dead
from readings r order by r.msg_id limit 1;
select isnt((select dead from routed), null, 'routing returns the number in the dead letters');
select is((select count(*)::int from pgmq.q_intake_queue q join routed using (msg_id)), 0,
    'the message has left the queue');
select is((select (d.message ->> 'original_msg_id')::bigint from pgmq.q_intake_dlq d
           join routed r on r.dead = d.msg_id), (select msg_id from routed),
    'and lies among the dead letters');
select is((select public.intake_route_to_dlq(r.msg_id, '{}', 1) from routed r), null,
    'a message that is gone is not routed again');

select is((select array_agg(d) from public.intake_queue_delete(
              (select array_agg(msg_id) from readings)) d),
          (select array_agg(msg_id) from readings r where not exists (
              select from routed x where x.msg_id = r.msg_id)),
    'deleting returns what was there');

delete from public.engine_metrics;
select public.snapshot_engine_metrics();
select is((select count(*)::int from public.engine_metrics),
          (select count(*)::int from public.engine_config where is_active),
    'one row of metrics per active pool');
select is((select array[available_slots, reserved_slots, consumed_slots, dlq_depth]
           from public.engine_metrics where pool_id = 'tap'),
          array[0, 3, 0, (select queue_length::int from pgmq.metrics('intake_dlq'))],
    'with the counts of that pool');

select * from finish();
rollback;
