-- An event whose workers keep dying may be what kills them, or may only have been near. One suspect
-- of a source and type at a time, so that what is harmless comes through and what is not takes no
-- other along. Not one of all, because a suspect that nobody claims must not keep others waiting.
-- Called under the sweep's lock, so that two workers do not bring one each.
create or replace function webhook.inbox_bring_suspect(p_from_zero boolean default false)
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
                                else penstock.time_floor('penstock.inbox_due') end;
    v_paused uuid[] := array(
        select w.id from public.webhook_endpoints w
        where w.source = any (penstock.paused('source')));
    v_ids uuid[];
    v_count integer;
begin
    v_ids := array(
        select distinct on (w.webhook_id, w.event_type) w.id
        from (select s.id, s.webhook_id, s.event_type, s.next_attempt_at
              from public.webhook_events s
              where s.next_attempt_at > v_floor and s.next_attempt_at <= v_now
                and s.error_code = 'ZOMBIE_SUSPECT' and s.webhook_id <> all (v_paused)
                and (s.webhook_id, s.event_type) not in (
                    select e.webhook_id, e.event_type from public.webhook_events e
                    where e.error_code = 'ZOMBIE_SUSPECT' and e.next_attempt_at is null
                      and e.dead_at is null)
              order by s.next_attempt_at
              limit 1000) w
        order by w.webhook_id, w.event_type, w.next_attempt_at);
    update public.webhook_events e
    set pos = nextval('penstock.inbox_next'), next_attempt_at = null
    where e.ctid = any (array(
        select s.ctid from public.webhook_events s
        where s.id = any (v_ids) and s.next_attempt_at <= v_now
          and s.error_code = 'ZOMBIE_SUSPECT'
        for update skip locked));
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function webhook.inbox_bring_suspect(boolean) is
    'Make one event of each source and type ready whose workers keep dying, if none is under way.';
revoke all on function webhook.inbox_bring_suspect(boolean) from public;
