-- Whoever writes to the hot table, also a relayer with table rights, cannot invent or change money:
-- a row must be one that enqueue registered, still open and not in flight.
create or replace function penstock_payments.guard_pending() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'UPDATE' then
        if (new.outbox_id, new.instruction_id, new.participant_id, new.sequence_id,
            new.idempotency_key, new.rail_type, new.payload, new.created_at, new.first_sent_at)
           is distinct from
           (old.outbox_id, old.instruction_id, old.participant_id, old.sequence_id,
            old.idempotency_key, old.rail_type, old.payload, old.created_at, old.first_sent_at)
           or new.attempt_count < old.attempt_count then
            raise exception using errcode = 'PN504',
                message = format('payment %s cannot be changed', old.outbox_id);
        end if;
    elsif not exists (
        select from public.payment_outbox_registry r
        where r.outbox_id = new.outbox_id and r.instruction_id = new.instruction_id
          and r.participant_id = new.participant_id and r.sequence_id = new.sequence_id
          and r.idempotency_key = new.idempotency_key and r.rail_type = new.rail_type
          and r.payload_sha256 = sha256(convert_to(new.payload::text, 'UTF8'))
          and r.terminal_state is null
    ) or exists (
        select from public.payment_outbox_inflight i where i.outbox_id = new.outbox_id
    ) then
        raise exception using errcode = 'PN504',
            message = format('payment %s is not an open one of the registry', new.outbox_id),
            hint    = 'payments come from enqueue_payment_outbox only';
    end if;
    return new;
end
$$;

comment on function penstock_payments.guard_pending() is
    'Trigger: pending rows are registered payments, and what they say does not change.';
revoke all on function penstock_payments.guard_pending() from public;
