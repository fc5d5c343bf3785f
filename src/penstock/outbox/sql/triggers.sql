create or replace trigger outbox_ring
    after insert on public.outbox
    for each statement execute function app.outbox_ring();

create or replace trigger outbox_attempts_append_only
    before update or delete on public.outbox_attempts
    for each row execute function penstock.refuse_change();
