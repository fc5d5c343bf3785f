create or replace function penstock_intake.discard_one(
    p_msg_id bigint, p_cancelled uuid[], p_reason text,
    out outcome text, out offered_id uuid, out message jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_message jsonb;
    v_resource uuid;
    v_reservation uuid;
begin
    select d.message into v_message from pgmq.q_intake_dlq d where d.msg_id = p_msg_id;
    v_resource := penstock_intake.as_uuid(v_message ->> 'resource_id');
    v_reservation := coalesce(penstock_intake.as_uuid(v_message ->> 'reservation_id'), (
        select s.reservation_id from public.inventory_slots s
        where s.id = v_resource and s.locked_by = v_message ->> 'user_id'));
    perform penstock_intake.lock_pool(s.pool_id)
    from public.inventory_slots s where s.id = v_resource;
    perform from public.inventory_slots s where s.id = v_resource for update;
    -- Whoever held the slot may have taken the dead letter away: look again, now that it is ours.
    perform from pgmq.q_intake_dlq d where d.msg_id = p_msg_id for update;
    if not found then
        outcome := 'gone';
        return;
    end if;
    select f.outcome, f.offered_id into outcome, offered_id
    from penstock_intake.free_slot(v_resource, v_reservation,
        coalesce(v_reservation = any (p_cancelled), false), p_reason) f;
    if outcome <> 'started' then
        delete from pgmq.q_intake_dlq d where d.msg_id = p_msg_id returning d.message into message;
        outcome := case outcome when 'gone' then 'removed' else outcome end;
    end if;
end
$$;

comment on function penstock_intake.discard_one(bigint, uuid[], text) is
    'released, retired, removed (it held no slot), sold, started (cancel it first) or gone.';
revoke all on function penstock_intake.discard_one(bigint, uuid[], text) from public;
