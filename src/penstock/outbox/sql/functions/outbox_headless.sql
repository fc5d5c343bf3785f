create or replace function app.outbox_headless(p_hash bigint) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
    return exists (select from public.outbox o where o.key_hash = p_hash and o.turn is not null)
        and not exists (select from public.outbox o
                        where o.key_hash = p_hash and o.turn is null and o.parked_at is null);
end
$$;

comment on function app.outbox_headless(bigint) is 'Whether a line has waiting events and no head.';
revoke all on function app.outbox_headless(bigint) from public;
