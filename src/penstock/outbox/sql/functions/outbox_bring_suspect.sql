-- An event whose workers keep dying may be what kills them, or may only have been near. One suspect
-- of a topic at a time, so that what is harmless comes through and what is not takes no other
-- along. Not one of all, because a suspect that nobody claims must not keep other topics waiting.
-- Called under the sweep's lock, so that two workers do not bring one each.
create or replace function app.outbox_bring_suspect(p_from_zero boolean default false)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := case when p_from_zero then '-infinity'
                                else penstock.time_floor('penstock.outbox_due') end;
    v_closed text[] := penstock.paused('topic');
    v_seqs bigint[];
    v_count integer;
begin
    v_closed := v_closed || array(
        select distinct o.topic from public.outbox o
        where o.error_code = 'ZOMBIE_SUSPECT' and o.next_attempt_at is null
          and o.dead_at is null and o.held_at is null and o.fanned_at is null);
    v_seqs := array(
        select distinct on (w.topic) w.seq
        from (select s.seq, s.topic, s.next_attempt_at from public.outbox s
              where s.next_attempt_at > v_floor and s.next_attempt_at <= v_now
                and s.error_code = 'ZOMBIE_SUSPECT' and s.topic <> all (v_closed)
              order by s.next_attempt_at
              limit 1000) w
        order by w.topic, w.next_attempt_at);
    update public.outbox o
    set pos = nextval('penstock.outbox_next'), next_attempt_at = null
    where o.ctid = any (array(
        select s.ctid from public.outbox s
        where s.seq = any (v_seqs) and s.next_attempt_at <= v_now
          and s.error_code = 'ZOMBIE_SUSPECT'
        for update skip locked));
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_bring_suspect(boolean) is
    'Make one event of each topic ready whose workers keep dying, if no other is under way there.';
revoke all on function app.outbox_bring_suspect(boolean) from public;
