-- A net: outbox_promote asks for every look that is needed, so this should find nothing. One probe
-- per key with waiting events, whatever the length of its line.
create or replace function app.outbox_check_keys() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_count integer;
begin
    with recursive walk as (
        (select o.key_hash from public.outbox o where o.turn is not null
         order by o.key_hash limit 1)
        union all
        select n.key_hash from walk w
        cross join lateral (
            select o.key_hash from public.outbox o
            where o.turn is not null and o.key_hash > w.key_hash
            order by o.key_hash limit 1) n
    )
    insert into public.outbox_key_checks (key_hash)
    select w.key_hash from walk w
    where not exists (select from public.outbox o
                      where o.key_hash = w.key_hash and o.turn is null and o.parked_at is null);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_check_keys() is
    'Ask for a look at every line without a head; returns how many there were.';
revoke all on function app.outbox_check_keys() from public;
grant execute on function app.outbox_check_keys() to penstock_outbox_executor;
