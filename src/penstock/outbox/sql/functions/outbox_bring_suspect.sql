-- An event whose worker died twice in a row may be what kills it, or may only have been near. One
-- suspect at a time, so that what is harmless comes through and what is not takes no other along.
-- Called under the sweep's lock, so that two workers do not bring one each.
create or replace function app.outbox_bring_suspect() returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := penstock.time_floor('penstock.outbox_due');
    v_count integer;
begin
    if exists (
        select from public.outbox o
        where o.error_code = 'ZOMBIE_AGAIN' and o.next_attempt_at is null
          and o.dead_at is null and o.held_at is null
    ) then
        return 0;
    end if;
    update public.outbox o
    set pos = nextval('penstock.outbox_next'), next_attempt_at = null
    where o.ctid = any (array(
        select s.ctid from public.outbox s
        where s.next_attempt_at > v_floor and s.next_attempt_at <= v_now
          and s.error_code = 'ZOMBIE_AGAIN'
        order by s.next_attempt_at
        limit 1
        for update skip locked));
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_bring_suspect() is
    'Make one event ready whose worker died twice in a row, if no other such one is under way.';
revoke all on function app.outbox_bring_suspect() from public;
