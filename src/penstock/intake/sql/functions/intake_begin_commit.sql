create or replace function public.intake_begin_commit(
    p_resource_ids uuid[], p_reservation_ids uuid[]
) returns setof uuid
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update public.inventory_slots s
    set commit_started_at = coalesce(s.commit_started_at, penstock.clock())
    from (select * from unnest(p_resource_ids, p_reservation_ids) as a (id, reservation_id)
          order by a.id) a
    where s.id = a.id and s.reservation_id = a.reservation_id and s.status::text = 'RESERVED'
      and (s.commit_started_at is not null or s.hold_expires_at is null
           or s.hold_expires_at > penstock.clock())
    returning s.id
$$;

comment on function public.intake_begin_commit(uuid[], uuid[]) is
    'Write down that the commit of these reservations starts now; returns the resources that are '
    'still theirs. Only those may be committed.';
revoke all on function public.intake_begin_commit(uuid[], uuid[]) from public;
grant execute on function public.intake_begin_commit(uuid[], uuid[]) to penstock_intake_executor;
