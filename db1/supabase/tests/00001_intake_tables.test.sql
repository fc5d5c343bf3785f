-- Tables, types, indexes and queues of the intake engine.
begin;
select plan(40);

-- Extensions, where the server offers them; elsewhere pgmq comes as plain SQL and the worker keeps
-- the schedules.
select case when exists (select from pg_available_extensions where name = 'pgmq')
    then ok(exists (select from pg_extension where extname = 'pgmq'), 'extension pgmq')
    else skip('this server has no extension pgmq', 1) end;
select case when exists (select from pg_available_extensions where name = 'pg_cron')
                 and current_database() = current_setting('cron.database_name', true)
    then ok(exists (select from pg_extension where extname = 'pg_cron'), 'extension pg_cron')
    else skip('this database has no pg_cron', 1) end;
select case when exists (select from pg_available_extensions where name = 'pg_net')
    then ok(exists (select from pg_extension where extname = 'pg_net'), 'extension pg_net')
    else skip('this server has no extension pg_net', 1) end;
select has_schema('pgmq', 'the queues are pgmq''s');

select has_type('public', 'slot_status', 'type slot_status');
select enum_has_labels('public', 'slot_status', array['AVAILABLE', 'RESERVED', 'CONSUMED'],
    'labels of slot_status');

select has_table('public', 'inventory_slots', 'table inventory_slots');
select has_column('public', 'inventory_slots', c, 'inventory_slots.' || c)
from unnest(array['id', 'pool_id', 'status', 'locked_by', 'locked_at']) as c;
select col_is_pk('public', 'inventory_slots', 'id', 'primary key of inventory_slots');
select col_type_is('public', 'inventory_slots', 'id', 'uuid', 'a slot is named by a uuid');
select col_not_null('public', 'inventory_slots', 'pool_id', 'a slot has a pool');
select col_default_is('public', 'inventory_slots', 'status', 'AVAILABLE', 'a new slot is on offer');
select is((select c.relpersistence from pg_class c
           where c.oid = 'public.inventory_slots'::regclass), 'p'::"char",
    'a crash does not empty the sale');
select has_index('public', 'inventory_slots', 'idx_available_slots', 'index of free slots');
select alike((select pg_get_indexdef(to_regclass('public.idx_available_slots'))),
    '%(pool_id, status) WHERE%AVAILABLE%', 'the index of free slots holds no others');
select is((select count(*)::int from pg_index i join pg_class c on c.oid = i.indexrelid
           where i.indrelid = 'public.inventory_slots'::regclass and i.indisunique
             and i.indnatts = 1 and not i.indisprimary), 0,
    'no second unique index on the key');

select has_table('public', 'engine_config', 'table engine_config');
select has_column('public', 'engine_config', c, 'engine_config.' || c)
from unnest(array['pool_id', 'batch_size', 'visibility_timeout_sec', 'max_retries', 'is_active',
    'validation_webhook_url', 'commit_rpc_name', 'commit_webhook_url']) as c;
select col_is_pk('public', 'engine_config', 'pool_id', 'primary key of engine_config');
select col_default_is('public', 'engine_config', 'commit_rpc_name', 'finalize_transaction',
    'commits go to finalize_transaction');
select is((select count(*)::int from pg_constraint
           where conrelid = 'public.engine_config'::regclass and contype = 'f'), 0,
    'config may come before inventory');

select has_table('public', 'engine_metrics', 'table engine_metrics');
select has_pk('public', 'engine_metrics', 'engine_metrics has a key');
select has_index('public', 'engine_metrics', 'idx_metrics_pool_ts',
    array['pool_id', 'captured_at'], 'index of a pool''s metrics');

select is((select count(*)::int from pgmq.list_queues() q where q.queue_name = name), 1,
    'queue ' || name)
from unnest(array['intake_queue', 'intake_dlq']) as name;

select ok(c.relrowsecurity, 'row security on ' || c.relname)
from pg_class c
where c.oid in ('public.inventory_slots'::regclass, 'public.engine_config'::regclass,
                'public.engine_metrics'::regclass);

select * from finish();
rollback;
