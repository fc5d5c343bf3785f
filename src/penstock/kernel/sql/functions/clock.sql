-- The one clock of all our SQL. Tests replace this function by a settable one; production has no
-- hook that a caller could turn.
create or replace function penstock.clock() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;

comment on function penstock.clock() is 'Database time; the only clock that leases know.';
revoke all on function penstock.clock() from public;
grant execute on function penstock.clock() to public;
