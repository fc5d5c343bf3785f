-- For a payment that an operator holds between two dispatches: a dispatch and its end as a pair, so
-- that numbering stays whole, and the terminal state. One that was never dispatched has no end to
-- record: it is cancelled instead.
create or replace function penstock_payments.end_waiting(
    p_outbox_id uuid, p_state text, p_rail_reference text, p_reason text
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := penstock.clock();
    v_row public.payment_outbox_pending;
begin
    delete from public.payment_outbox_pending p
    where p.outbox_id = p_outbox_id and p.next_attempt_at = 'infinity'
    returning * into v_row;
    if not found then
        return false;
    elsif v_row.attempt_count = 0 then
        raise exception using errcode = 'PN505',
            message = format('payment %s waits, and was never dispatched', p_outbox_id),
            hint    = 'cancel_payment withdraws it; resolved as not_paid it is sent';
    end if;
    insert into public.payment_outbox_attempts
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
         payload, attempt_no, state, claimed_at, completed_at, rail_reference, error_code,
         error_message)
    select v_row.outbox_id, v_row.instruction_id, v_row.participant_id, v_row.sequence_id,
           v_row.idempotency_key, v_row.rail_type, v_row.payload, v_row.attempt_count + s.n, s.state,
           v_now, case s.n when 2 then v_now end, case s.n when 2 then p_rail_reference end,
           'RESOLVED', case s.n when 2 then left(p_reason, 2000) end
    from (values (1, 'DISPATCHING'::public.outbox_attempt_state),
                 (2, p_state::public.outbox_attempt_state)) as s (n, state)
    order by s.n;
    if p_state = 'FAILED' then
        insert into penstock_payments.dead_letters
            (outbox_id, participant_id, sequence_id, rail_type, error_code, error_message,
             attempt_no, blocks, created_at, dead_at, payload, headers)
        values (v_row.outbox_id, v_row.participant_id, v_row.sequence_id, v_row.rail_type,
                'RESOLVED', left(p_reason, 2000), v_row.attempt_count + 2,
                coalesce((select r.on_failed = 'block' from public.payment_rails r
                          where r.rail_type = v_row.rail_type), false),
                v_row.created_at, v_now, v_row.payload, v_row.headers);
    end if;
    update public.payment_outbox_registry r
    set terminal_state = p_state, terminal_at = v_now, first_sent_at = v_row.first_sent_at
    where r.outbox_id = p_outbox_id;
    return true;
end
$$;

comment on function penstock_payments.end_waiting(uuid, text, text, text) is
    'End a payment that an operator holds between two dispatches; false if it is not one.';
revoke all on function penstock_payments.end_waiting(uuid, text, text, text) from public;
