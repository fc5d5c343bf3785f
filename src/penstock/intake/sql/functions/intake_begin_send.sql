-- The mark stands before the call leaves and is never taken back: whoever finds it cannot know what
-- became of that call, however it seemed to end. Of two workers at once only one is the first.
create or replace function public.intake_begin_send(p_resource_id uuid, p_reservation_id uuid)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_sent_at timestamptz;
begin
    select s.sent_at into v_sent_at from public.inventory_slots s
    where s.id = p_resource_id and s.reservation_id = p_reservation_id
      and s.status::text = 'RESERVED'
      and (s.commit_started_at is not null or s.hold_expires_at is null
           or s.hold_expires_at > v_now)
    for update;
    if not found then
        return 'lost';
    elsif v_sent_at is not null then
        return 'again';
    end if;
    update public.inventory_slots s
    set sent_at = v_now, commit_started_at = coalesce(s.commit_started_at, v_now)
    where s.id = p_resource_id;
    return 'first';
end
$$;

comment on function public.intake_begin_send(uuid, uuid) is
    'Write down that the commit is sent to a webhook now: first, again (a call was made before) or '
    'lost (the slot is no longer this reservation''s: it must not be sent).';
revoke all on function public.intake_begin_send(uuid, uuid) from public;
grant execute on function public.intake_begin_send(uuid, uuid) to penstock_intake_executor;
