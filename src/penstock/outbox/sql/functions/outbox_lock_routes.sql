-- Whoever waits for this lock makes every later claim wait behind it. So it is asked for only a moment at
-- a time, with pauses in which the claims go on, and given up after a while.
create or replace function app.outbox_lock_routes(p_tries integer default 100) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before text := current_setting('lock_timeout');
begin
    for v_try in 1 .. p_tries loop
        begin
            perform set_config('lock_timeout', '50ms', true);
            lock table public.outbox_routes in access exclusive mode;
            perform set_config('lock_timeout', v_before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.05 + 0.1 * random());
        end;
    end loop;
    raise exception using
        errcode = 'PN405',
        message = 'the routes are in use by a transaction that does not end',
        hint    = 'try again; penstock doctor names transactions that have been open for long';
end
$$;

comment on function app.outbox_lock_routes(integer) is
    'Lock the routes against everybody without making anybody wait for long; raises PN405.';
revoke all on function app.outbox_lock_routes(integer) from public;
