-- A hint, never a promise: polling finds the row anyway. Off by default, because every notifying
-- commit waits for one global lock.
create or replace function app.outbox_ring() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if (select c.notify from penstock.queue_config c where c.queue = 'outbox') then
        notify penstock_outbox;
    end if;
    return null;
end
$$;

comment on function app.outbox_ring() is 'Trigger: tell listeners, if the queue''s policy says so.';
revoke all on function app.outbox_ring() from public;
