create or replace trigger outbox_ring
    after insert on public.outbox
    for each statement execute function app.outbox_ring();

create or replace trigger outbox_relay_claimed
    after update of processing_token on public.outbox
    for each row when (new.relay is not null) execute function app.outbox_relay_follow();

create or replace trigger outbox_relay_gone
    after delete on public.outbox
    for each row when (old.relay is not null) execute function app.outbox_relay_follow();

create or replace trigger outbox_relay_insert
    after insert on payments.outbox_transfers
    for each row execute function app.outbox_relay_insert();

create or replace trigger outbox_relay_insert
    after insert on ledger.outbox_ledger
    for each row execute function app.outbox_relay_insert();

create or replace trigger outbox_line_up
    before insert on public.outbox
    for each row when (new.ordering_key is not null) execute function app.outbox_line_up();

create or replace trigger outbox_attempts_append_only
    before update or delete on public.outbox_attempts
    for each row execute function penstock.refuse_change();
alter table public.outbox_attempts enable always trigger outbox_attempts_append_only;

-- A TRUNCATE trigger belongs to one table: penstock.make_days gives every day its own.
create or replace trigger outbox_attempts_no_truncate
    before truncate on public.outbox_attempts
    for each statement execute function penstock.refuse_change();
alter table public.outbox_attempts enable always trigger outbox_attempts_no_truncate;

create or replace trigger outbox_attempts_no_truncate
    before truncate on public.outbox_attempts_default
    for each statement execute function penstock.refuse_change();
alter table public.outbox_attempts_default enable always trigger outbox_attempts_no_truncate;
