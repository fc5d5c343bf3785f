-- Ends a reservation that was not confirmed. The pool is locked before the slot, as everywhere. A
-- resource whose commit may have been sent is never offered again: a new id takes its place.
create or replace function penstock_intake.free_slot(
    p_resource_id uuid, p_reservation_id uuid, p_cancelled boolean, p_reason text,
    out outcome text, out offered_id uuid
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_slot record;
begin
    perform penstock_intake.lock_pool(s.pool_id)
    from public.inventory_slots s where s.id = p_resource_id;
    select * into v_slot from public.inventory_slots s where s.id = p_resource_id for update;
    if v_slot.reservation_id is distinct from p_reservation_id or p_reservation_id is null then
        outcome := 'gone';
    elsif v_slot.status = 'CONSUMED' then
        outcome := 'sold';
    elsif v_slot.commit_started_at is null then
        update public.inventory_slots s set status = 'AVAILABLE' where s.id = p_resource_id;
        outcome := 'released';
        offered_id := p_resource_id;
    elsif not p_cancelled then
        outcome := 'started';
    else
        outcome := 'retired';
        offered_id := penstock.uuidv7();
        insert into penstock_intake.retired_slots (id, pool_id, replaced_by, locked_by,
            reservation_id, request_id, locked_at, commit_started_at, reason)
        values (v_slot.id, v_slot.pool_id, offered_id, v_slot.locked_by, v_slot.reservation_id,
            v_slot.request_id, v_slot.locked_at, v_slot.commit_started_at, p_reason);
        delete from public.inventory_slots s where s.id = p_resource_id;
        insert into public.inventory_slots (id, pool_id) values (offered_id, v_slot.pool_id);
        update penstock_intake.pool_stock t set stocked = t.stocked - 1
        where t.pool_id = v_slot.pool_id;
    end if;
end
$$;

comment on function penstock_intake.free_slot(uuid, uuid, boolean, text) is
    'released, retired (replaced by a new id), started (cancel in the ledger first), sold, gone.';
revoke all on function penstock_intake.free_slot(uuid, uuid, boolean, text) from public;
