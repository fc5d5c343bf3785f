-- For a payment that is not in flight: a dispatch and its success as a pair, so that numbering stays
-- whole, and the terminal state. The caller has locked or removed the row that stood open.
create or replace function penstock_payments.write_late_pair(
    p_outbox_id uuid, p_rail_reference text, p_rail_code text, p_error_code text, p_token uuid
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := penstock.clock();
begin
    with last as (
        select * from public.payment_outbox_attempts a
        where a.outbox_id = p_outbox_id
        order by a.attempt_no desc limit 1
    )
    insert into public.payment_outbox_attempts
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
         payload, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code,
         error_code, lease_token)
    select l.outbox_id, l.instruction_id, l.participant_id, l.sequence_id, l.idempotency_key,
           l.rail_type, l.payload, l.attempt_no + s.n, s.state, v_now,
           case s.n when 2 then v_now end, case s.n when 2 then p_rail_reference end,
           case s.n when 2 then p_rail_code end, p_error_code, p_token
    from last l
    cross join (values (1, 'DISPATCHING'::public.outbox_attempt_state),
                       (2, 'DISPATCHED'::public.outbox_attempt_state)) as s (n, state)
    order by s.n;
    delete from penstock_payments.dead_letters d where d.outbox_id = p_outbox_id;
    update public.payment_outbox_registry r
    set terminal_state = 'DISPATCHED', terminal_at = v_now, discarded_at = null
    where r.outbox_id = p_outbox_id;
end
$$;

comment on function
    penstock_payments.write_late_pair(uuid, text, text, text, uuid) is
    'Record a success of a payment that is not in flight, and end it.';
revoke all on function penstock_payments.write_late_pair(uuid, text, text, text, uuid)
    from public;
