create or replace function penstock_intake.reconcile_one(
    p_resource_id uuid, p_pool_id text, p_user_id text, p_reservation_id uuid, p_at timestamptz
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_slot record;
    v_ours boolean;
begin
    perform penstock_intake.lock_pool(p_pool_id);
    select s.status, s.locked_by, s.reservation_id into v_slot
    from public.inventory_slots s where s.id = p_resource_id for update;
    if not found then
        if exists (select from penstock_intake.retired_slots r where r.id = p_resource_id) then
            return 'retired';
        end if;
        insert into public.inventory_slots (id, pool_id, status, locked_by, locked_at,
            reservation_id, commit_started_at, consumed_at)
        values (p_resource_id, p_pool_id, 'CONSUMED', p_user_id, p_at, p_reservation_id,
                p_at, p_at);
        return 'restored';
    end if;
    v_ours := v_slot.locked_by = p_user_id
              and v_slot.reservation_id = coalesce(p_reservation_id, v_slot.reservation_id);
    if v_ours and v_slot.status = 'CONSUMED' then
        return 'agreed';
    end if;
    update public.inventory_slots s
    set status = 'CONSUMED', locked_by = p_user_id, locked_at = coalesce(s.locked_at, p_at),
        reservation_id = coalesce(p_reservation_id, case when v_ours then s.reservation_id end,
                                  penstock.uuidv7()),
        request_id = case when v_ours then s.request_id end,
        user_nth = case when v_ours then s.user_nth end,
        commit_started_at = coalesce(s.commit_started_at, p_at, penstock.clock()),
        consumed_at = coalesce(p_at, penstock.clock())
    where s.id = p_resource_id;
    delete from pgmq.q_intake_queue q where q.message ->> 'reservation_id' = p_reservation_id::text;
    delete from pgmq.q_intake_dlq d where d.message ->> 'reservation_id' = p_reservation_id::text;
    return case when v_ours or v_slot.status = 'AVAILABLE' then 'consumed' else 'corrected' end;
end
$$;

comment on function penstock_intake.reconcile_one(uuid, text, text, uuid, timestamptz) is
    'Make one slot agree with its confirmed ticket.';
revoke all on function
    penstock_intake.reconcile_one(uuid, text, text, uuid, timestamptz) from public;
