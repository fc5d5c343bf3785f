-- A status set by a plain UPDATE moves the row as the verbs would: back from a lease it waits like
-- any failed attempt and dies when its attempts are used up; back from the dead it starts anew. The
-- claim that it ends has its record like any other.
create or replace function webhook.place_by_hand() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_max integer := (select c.max_attempts from penstock.queue_config c where c.queue = 'inbox');
begin
    if new.status = 'processing' then
        raise exception using
            errcode = 'PN201',
            message = 'a lease is taken by a claim, not by setting the status';
    end if;
    if old.status = 'processing' and new.status in ('pending', 'failed')
       and old.attempts >= v_max then
        new.status := 'dead_letter';
        new.error_code := 'max_attempts_exceeded';
    end if;
    if old.status = 'processing' and new.status = 'success' then
        new.finished_token := old.lease_token;
    elsif coalesce(old.lease_token, old.finished_token) is not null then
        new.finished_token := null;
        insert into public.webhook_attempts (id, lease_token, lease_epoch, outcome, error_code, error)
        values (old.id, coalesce(old.lease_token, old.finished_token), old.lease_epoch,
                case when new.status = 'dead_letter' then 'REJECT' else 'RETRY' end, 'by_hand',
                new.error);
    end if;
    new.pos := null;
    new.next_attempt_at := null;
    new.lease_token := null;
    new.lease_owner := null;
    new.lease_expires_at := null;
    new.dead_at := case when new.status = 'dead_letter' then penstock.clock() end;
    new.processed_at := case when new.status = 'success' then penstock.clock() end;
    if new.status in ('pending', 'failed') then
        if old.status = 'processing' then
            new.next_attempt_at := penstock.clock()
                + make_interval(secs => webhook.backoff_s(old.attempts));
        else
            new.pos := nextval('penstock.inbox_next');
        end if;
    end if;
    if new.status = 'dead_letter' then
        perform penstock.alert('inbox', array[new.id],
            array[coalesce((select w.source from public.webhook_endpoints w
                            where w.id = new.webhook_id), new.webhook_id::text)
                  || '/' || new.event_type],
            array['DEAD'], array[new.error_code], array[new.error]);
    end if;
    return new;
end
$$;

comment on function webhook.place_by_hand() is
    'Trigger: keep a row whole whose status is set by a plain UPDATE.';
revoke all on function webhook.place_by_hand() from public;
