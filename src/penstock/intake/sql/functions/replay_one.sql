-- The slot is locked first: a reaper that holds it is waited for, and then the reservation tells
-- whether the slot is still this message's. Of two replays the second finds nothing to delete.
create or replace function penstock_intake.replay_one(
    p_msg_id bigint, out outcome text, out new_msg_id bigint, out message jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_dead record;
    v_slot record;
begin
    select d.message, d.headers into v_dead from pgmq.q_intake_dlq d where d.msg_id = p_msg_id;
    if not found then
        outcome := 'gone';
        return;
    end if;
    select s.reservation_id, s.status, s.locked_by into v_slot from public.inventory_slots s
    where s.id = penstock_intake.as_uuid(v_dead.message ->> 'resource_id') for update;
    if v_slot.reservation_id is null
       or v_slot.reservation_id::text is distinct from
          coalesce(v_dead.message ->> 'reservation_id', case
              when v_slot.locked_by = v_dead.message ->> 'user_id'
              then v_slot.reservation_id::text end) then
        outcome := 'not_replayable';
        return;
    end if;
    delete from pgmq.q_intake_dlq d where d.msg_id = p_msg_id returning d.message into message;
    if message is null then
        outcome := 'gone';
    elsif v_slot.status = 'CONSUMED' then
        outcome := 'sold';
    else
        outcome := 'replayed';
        message := message - array['original_msg_id', 'final_read_ct', 'routed_to_dlq_at']
            || jsonb_build_object(
                'replay_count', coalesce((message ->> 'replay_count')::int, 0) + 1,
                'total_attempts', coalesce((message ->> 'total_attempts')::int, 0)
                                  + coalesce((message ->> 'final_read_ct')::int, 0));
        new_msg_id := (select n from pgmq.send('intake_queue', message,
            case when jsonb_typeof(v_dead.headers) = 'object'
                 then v_dead.headers - array['error_code', 'error'] end, penstock.clock()) as n);
    end if;
end
$$;

comment on function penstock_intake.replay_one(bigint) is
    'replayed, sold (already confirmed: the dead letter goes), not_replayable or gone.';
revoke all on function penstock_intake.replay_one(bigint) from public;
