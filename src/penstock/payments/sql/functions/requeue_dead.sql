-- The old ids, sequence and attempt_count; a new cycle of attempts. No attempts row of its own: the
-- next DISPATCHING says why.
create or replace function penstock_payments.requeue_dead(p_outbox_id uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_registry public.payment_outbox_registry;
    v_dead penstock_payments.dead_letters;
begin
    update public.payment_outbox_registry r
    set terminal_state = null, terminal_at = null, reconciled_at = null, discarded_at = null,
        replay_count = r.replay_count + 1,
        first_sent_at = case when r.reconciled_at is null then r.first_sent_at end
    where r.outbox_id = p_outbox_id
    returning r.* into v_registry;
    delete from penstock_payments.dead_letters d where d.outbox_id = p_outbox_id
    returning d.* into v_dead;
    insert into public.payment_outbox_pending
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
         payload, headers, created_at, attempt_count, uncounted, claim_code, first_sent_at)
    values
        (p_outbox_id, v_registry.instruction_id, v_registry.participant_id, v_registry.sequence_id,
         v_registry.idempotency_key, v_registry.rail_type, v_dead.payload, v_dead.headers,
         v_dead.created_at, v_dead.attempt_no, v_dead.attempt_no, 'OPERATOR_REPLAY',
         v_registry.first_sent_at);
end
$$;

comment on function penstock_payments.requeue_dead(uuid) is
    'Put a failed payment back into pending with its old ids.';
revoke all on function penstock_payments.requeue_dead(uuid) from public;
