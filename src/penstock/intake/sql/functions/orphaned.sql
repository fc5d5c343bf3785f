-- Reserved slots that no message speaks for. A message without a reservation id speaks for whoever
-- holds its resource.
create or replace function penstock_intake.orphaned(p_before timestamptz, p_ids uuid[] default null)
returns table (id uuid, pool_id text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select s.id, s.pool_id
    from public.inventory_slots s
    where s.status = 'RESERVED' and s.locked_at < p_before and s.commit_started_at is null
      and (p_ids is null or s.id = any (p_ids))
      and not exists (
          select from pgmq.q_intake_queue q
          where q.message ->> 'resource_id' = s.id::text
            and coalesce(q.message ->> 'reservation_id', s.reservation_id::text)
                = s.reservation_id::text)
      and not exists (
          select from pgmq.q_intake_dlq d
          where d.message ->> 'resource_id' = s.id::text
            and coalesce(d.message ->> 'reservation_id', s.reservation_id::text)
                = s.reservation_id::text)
$$;

comment on function penstock_intake.orphaned(timestamptz, uuid[]) is
    'Reserved slots without a message in either queue and without a started commit.';
revoke all on function penstock_intake.orphaned(timestamptz, uuid[]) from public;
