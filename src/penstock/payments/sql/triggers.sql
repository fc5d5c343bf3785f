create or replace trigger notify_outbox_pending
    after insert on public.payment_outbox_pending
    referencing new table as added
    for each statement execute function public.notify_outbox_pending();

create or replace trigger payment_outbox_pending_guard
    before insert or update on public.payment_outbox_pending
    for each row execute function penstock_payments.guard_pending();
alter table public.payment_outbox_pending enable always trigger payment_outbox_pending_guard;

create or replace trigger payment_outbox_pending_no_truncate
    before truncate on public.payment_outbox_pending
    for each statement execute function penstock_payments.refuse_change();
alter table public.payment_outbox_pending enable always trigger payment_outbox_pending_no_truncate;

create or replace trigger payment_outbox_inflight_no_truncate
    before truncate on public.payment_outbox_inflight
    for each statement execute function penstock_payments.refuse_change();
alter table public.payment_outbox_inflight enable always trigger payment_outbox_inflight_no_truncate;

create or replace trigger payment_outbox_registry_immutable
    before update of instruction_id, idempotency_key, outbox_id, participant_id, sequence_id,
                     rail_type, payload_sha256, created_at
    on public.payment_outbox_registry
    for each row execute function penstock_payments.guard_registry();
alter table public.payment_outbox_registry enable always trigger payment_outbox_registry_immutable;

create or replace trigger payment_outbox_registry_permanent
    before delete on public.payment_outbox_registry
    for each row execute function penstock_payments.refuse_change();
alter table public.payment_outbox_registry enable always trigger payment_outbox_registry_permanent;

create or replace trigger payment_outbox_registry_no_truncate
    before truncate on public.payment_outbox_registry
    for each statement execute function penstock_payments.refuse_change();
alter table public.payment_outbox_registry
    enable always trigger payment_outbox_registry_no_truncate;

create or replace trigger payment_outbox_attempts_append_only
    before update or delete on public.payment_outbox_attempts
    for each row execute function penstock_payments.refuse_change();
alter table public.payment_outbox_attempts
    enable always trigger payment_outbox_attempts_append_only;

-- A TRUNCATE trigger belongs to one table: payment_partitions gives every partition its own.
create or replace trigger payment_outbox_attempts_no_truncate
    before truncate on public.payment_outbox_attempts
    for each statement execute function penstock_payments.refuse_change();
alter table public.payment_outbox_attempts
    enable always trigger payment_outbox_attempts_no_truncate;

create or replace trigger payment_outbox_attempts_no_truncate
    before truncate on public.payment_outbox_attempts_default
    for each statement execute function penstock_payments.refuse_change();
alter table public.payment_outbox_attempts_default
    enable always trigger payment_outbox_attempts_no_truncate;

create or replace trigger payment_chain_append_only
    before update or delete on public.payment_chain
    for each row execute function penstock_payments.refuse_change();
alter table public.payment_chain enable always trigger payment_chain_append_only;

create or replace trigger payment_chain_no_truncate
    before truncate on public.payment_chain
    for each statement execute function penstock_payments.refuse_change();
alter table public.payment_chain enable always trigger payment_chain_no_truncate;

create or replace trigger participant_outbox_sequences_permanent
    before delete on public.participant_outbox_sequences
    for each row execute function penstock_payments.refuse_change();
alter table public.participant_outbox_sequences
    enable always trigger participant_outbox_sequences_permanent;

create or replace trigger participant_outbox_sequences_no_truncate
    before truncate on public.participant_outbox_sequences
    for each statement execute function penstock_payments.refuse_change();
alter table public.participant_outbox_sequences
    enable always trigger participant_outbox_sequences_no_truncate;
