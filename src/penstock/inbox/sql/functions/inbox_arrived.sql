-- Whoever inserts, through receive or by hand: an event that memory knows is no new event. Looking
-- after the insert closes the gap in which an old row moves to the archive: its memory is committed
-- before the unique key is free again.
create or replace function webhook.inbox_arrived() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_known uuid[];
begin
    -- One probe per row, which no join could be planned around.
    v_known := array(
        select a.id from arrived a cross join lateral (
            select from webhook.memory m
            where m.webhook_id = a.webhook_id and m.event_id = a.event_id limit 1) k);
    if cardinality(v_known) > 0 then
        delete from public.webhook_events e where e.id = any (v_known);
    end if;
    if exists (select from arrived a where a.dead_at is not null) then
        insert into webhook.tally (metric, webhook_id, label, count)
        select 'dead_letter', a.webhook_id, a.error_code, count(*)
        from arrived a where a.dead_at is not null and a.id <> all (v_known)
        group by 2, 3;
        perform webhook.note_dead(array(
            select a.id from arrived a where a.dead_at is not null and a.id <> all (v_known)));
    end if;
    -- A hint, never a promise; see penstock.queue_config.
    if (select c.notify from penstock.queue_config c where c.queue = 'inbox') then
        notify penstock_inbox;
    end if;
    return null;
end
$$;

comment on function webhook.inbox_arrived() is
    'Trigger: take back events that memory knows, and ring if the policy says so.';
revoke all on function webhook.inbox_arrived() from public;
