-- Lock order everywhere: pools in order of name, then slots, then messages. Nothing waits for a
-- pool while it holds a slot, except a hand-written UPDATE or INSERT, where the trigger asks.
create or replace function penstock_intake.lock_pool(p_pool_id text) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select pg_advisory_xact_lock(hashtextextended('penstock.pool/' || p_pool_id, 0)) $$;

comment on function penstock_intake.lock_pool(text) is
    'Be the only one to put slots of a pool on offer, until the transaction ends.';
revoke all on function penstock_intake.lock_pool(text) from public;
