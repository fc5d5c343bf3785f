-- A buyer may ask for an own reservation only; for another's the answer is the same as for none.
create or replace function public.intake_status(p_reservation_id uuid)
returns table (
    reservation_id uuid, resource_id uuid, pool_id text, state text, locked_at timestamptz,
    hold_expires_at timestamptz, consumed_at timestamptz, user_id text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select found.reservation_id, found.resource_id, found.pool_id, found.state, found.locked_at,
           found.hold_expires_at, found.consumed_at, found.locked_by
    from (
        select s.reservation_id, s.id, s.pool_id,
               case s.status when 'CONSUMED' then 'CONFIRMED' else 'RESERVED' end,
               s.locked_at, s.hold_expires_at, s.consumed_at, s.locked_by
        from public.inventory_slots s where s.reservation_id = p_reservation_id
        union all
        select r.reservation_id, r.id, r.pool_id, 'RELEASED', r.locked_at, null, null, r.locked_by
        from penstock_intake.retired_slots r where r.reservation_id = p_reservation_id
    ) as found (reservation_id, resource_id, pool_id, state, locked_at, hold_expires_at,
                consumed_at, locked_by)
    cross join lateral penstock_intake.may_act_for(found.locked_by) as m (allowed)
    where m.allowed
    limit 1
$$;

comment on function public.intake_status(uuid) is
    'What became of a reservation: RESERVED, CONFIRMED or RELEASED; no row if unknown.';
revoke all on function public.intake_status(uuid) from public;
grant execute on function public.intake_status(uuid)
    to penstock_intake_ingest, penstock_intake_executor, penstock_operator, penstock_readonly;
