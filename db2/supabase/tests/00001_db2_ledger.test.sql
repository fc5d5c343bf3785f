-- Confirmed tickets: one per resource, written by one function only.
begin;
select plan(17);

select has_table('public', 'confirmed_tickets', 'table confirmed_tickets');
select col_is_pk('public', 'confirmed_tickets', 'resource_id', 'one ticket per resource');
select col_type_is('public', 'confirmed_tickets', 'resource_id', 'uuid', 'named by a uuid');
select col_not_null('public', 'confirmed_tickets', c, 'always there: ' || c)
from unnest(array['pool_id', 'user_id', 'confirmed_at']) as c;
select has_function('public', 'finalize_transaction', array['jsonb'], 'finalize_transaction');
select function_returns('public', 'finalize_transaction', array['jsonb'], 'void', 'returns nothing');

create temporary table sale as select jsonb_build_object('pool_id', 'tap',
    'resource_id', gen_random_uuid(), 'user_id', '6f0e8a52-7a52-4d0e-9f3b-0b6f0a6e1c11') as payload;
select lives_ok('select public.finalize_transaction(payload) from sale', 'a ticket is confirmed');
select is((select user_id from public.confirmed_tickets where pool_id = 'tap'),
    '6f0e8a52-7a52-4d0e-9f3b-0b6f0a6e1c11', 'for the right user');
select lives_ok('select public.finalize_transaction(payload) from sale', 'again is no error');
select is((select count(*)::int from public.confirmed_tickets where pool_id = 'tap'), 1,
    'and no second ticket');
select throws_ok(
    'select public.finalize_transaction(payload || ''{"user_id": "another"}'') from sale',
    'PN305', null, 'another owner of the same resource is refused');
select is((select user_id from public.confirmed_tickets where pool_id = 'tap'),
    '6f0e8a52-7a52-4d0e-9f3b-0b6f0a6e1c11', 'and changes nothing');
select throws_ok('select public.finalize_transaction(''{"pool_id": "tap"}'')', '22023', null,
    'a payload without resource and user is refused');

select ok((select relrowsecurity from pg_class where oid = 'public.confirmed_tickets'::regclass),
    'row security is on');
select is((select count(*)::int from pg_policies where schemaname = 'public'
           and tablename = 'confirmed_tickets' and cmd <> 'SELECT'), 0,
    'no policy lets anybody write past the function');

select * from finish();
rollback;
