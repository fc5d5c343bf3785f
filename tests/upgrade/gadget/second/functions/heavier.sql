create or replace function gadget.heavier(p_than integer) returns bigint language sql
as $$ select count(*) from gadget.part where weight > p_than $$;
comment on function gadget.heavier(integer) is 'How many parts weigh more.';
revoke all on function gadget.heavier(integer) from public;
