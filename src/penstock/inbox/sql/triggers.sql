create or replace trigger webhook_events_fill
    before insert on public.webhook_events
    for each row when (new.raw_body is null or new.body_sha256 is null or new.provider is null)
    execute function webhook.fill_event();

create or replace trigger webhook_events_arrived
    after insert on public.webhook_events
    referencing new table as arrived
    for each statement execute function webhook.inbox_arrived();

-- The verbs always change one of these columns together with the status; a hand does not.
create or replace trigger webhook_events_by_hand
    before update of status on public.webhook_events
    for each row when (
        old.status is distinct from new.status
        and old.pos is not distinct from new.pos
        and old.next_attempt_at is not distinct from new.next_attempt_at
        and old.lease_token is not distinct from new.lease_token)
    execute function webhook.place_by_hand();

create or replace trigger webhook_attempts_append_only
    before update or delete on public.webhook_attempts
    for each row execute function penstock.refuse_change();
alter table public.webhook_attempts enable always trigger webhook_attempts_append_only;

-- A TRUNCATE trigger belongs to one table: penstock.make_days gives every day its own.
create or replace trigger webhook_attempts_no_truncate
    before truncate on public.webhook_attempts
    for each statement execute function penstock.refuse_change();
alter table public.webhook_attempts enable always trigger webhook_attempts_no_truncate;

create or replace trigger webhook_attempts_no_truncate
    before truncate on public.webhook_attempts_default
    for each statement execute function penstock.refuse_change();
alter table public.webhook_attempts_default enable always trigger webhook_attempts_no_truncate;
