-- A lease that is taken is a dispatch that starts; one that is given back unused is not. Whatever ends
-- without a delivery leaves the row FAILED, to be tried again or, when the event is dead, to be looked
-- at. A row whose event is withdrawn or given up stays FAILED too. With several routes every delivery
-- counts, and the row is SENT when all have ended well.
create or replace function app.outbox_relay_follow() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_row public.outbox := case tg_op when 'DELETE' then old else new end;
    v_sent boolean := tg_op = 'DELETE' and (old.processing_token is not null
                                            or old.fanned_at is not null);
    v_row_id uuid := coalesce(v_row.event_id, v_row.id);
    v_started integer := 0;
    v_status text := 'FAILED';
begin
    if v_sent and old.parent is not null then
        return null;
    end if;
    if v_sent and old.fanned_at is not null then
        v_sent := not exists (select from public.outbox_archive a
                              where a.event_id = old.id and a.state in ('DISCARDED', 'CANCELLED'));
    end if;
    if tg_op = 'UPDATE' and new.processing_token is not null then
        if old.processing_token is not null then
            return null;
        end if;
        v_started := 1;
        v_status := null;
    elsif tg_op = 'UPDATE' and new.attempts < old.attempts then
        v_started := -1;
        v_status := null;
    end if;
    execute format(
        'update %s set status = coalesce($2, status), sent_at = $3, retry_count = retry_count + $4, '
        'last_error = $5 where id = $1', v_row.relay::regclass)
    using v_row_id, case when v_sent then 'SENT' else v_status end,
          case when v_sent then penstock.clock() end, v_started,
          case when not v_sent then coalesce(v_row.error, v_row.error_code) end;
    return null;
end
$$;

comment on function app.outbox_relay_follow() is
    'Trigger: let a relay table show what became of its event.';
revoke all on function app.outbox_relay_follow() from public;
