-- A hint, never a promise: polling finds the row anyway. Only for rows that are due, and only if the
-- queue's policy says so, because every notifying commit waits for one global lock.
create or replace function public.notify_outbox_pending() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from added a where a.next_attempt_at <= penstock.clock())
       and (select p.notify from penstock.policy('payments') p) then
        notify outbox_pending, 'new_work';
    end if;
    return null;
end
$$;

comment on function public.notify_outbox_pending() is
    'Trigger: tell listeners that a payment is due.';
revoke all on function public.notify_outbox_pending() from public;
