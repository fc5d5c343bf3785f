create or replace trigger outbox_ring
    after insert on public.outbox
    for each statement execute function app.outbox_ring();

create or replace trigger outbox_line_up
    before insert on public.outbox
    for each row when (new.ordering_key is not null) execute function app.outbox_line_up();

create or replace trigger outbox_attempts_append_only
    before update or delete on public.outbox_attempts
    for each row execute function penstock.refuse_change();
alter table public.outbox_attempts enable always trigger outbox_attempts_append_only;

-- A TRUNCATE trigger belongs to one table: outbox_partitions gives every partition its own.
create or replace trigger outbox_attempts_no_truncate
    before truncate on public.outbox_attempts
    for each statement execute function penstock.refuse_change();
alter table public.outbox_attempts enable always trigger outbox_attempts_no_truncate;

create or replace trigger outbox_attempts_no_truncate
    before truncate on public.outbox_attempts_default
    for each statement execute function penstock.refuse_change();
alter table public.outbox_attempts_default enable always trigger outbox_attempts_no_truncate;
