-- The seed's claim: one event, whose token stays in the session for the three-argument
-- mark_event_result. A client that shares connections takes the token from penstock.lease_token.
create or replace function webhook.claim_next_event(p_webhook_id uuid default null)
returns table (id uuid, webhook_id uuid, event_id text, payload jsonb, signature text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_token uuid := gen_random_uuid();
    v_lease_s integer := (select c.lease_s from penstock.queue_config c where c.queue = 'inbox');
    v_tid tid;
begin
    if penstock.is_paused('inbox') then
        return;
    end if;
    perform webhook.inbox_tend(false);
    select k.tid into v_tid from webhook.pick_events(1, p_webhook_id) k;
    if not found then
        return;
    end if;
    perform set_config('penstock.lease_token', v_token::text, false);
    return query
        update public.webhook_events e
        set status = 'processing', pos = null, lease_token = v_token,
            lease_epoch = e.lease_epoch + 1, lease_owner = null,
            lease_expires_at = penstock.clock() + make_interval(secs => v_lease_s),
            last_attempt_at = penstock.clock(),
            attempts = e.attempts + 1, total_attempts = e.total_attempts + 1
        where e.ctid = v_tid
        returning e.id, e.webhook_id, e.event_id, e.payload, e.signature;
end
$$;

comment on function webhook.claim_next_event(uuid) is
    'Lease the oldest ready event, of one source or of any; none when there is nothing to do.';
revoke all on function webhook.claim_next_event(uuid) from public;
grant execute on function webhook.claim_next_event(uuid) to penstock_inbox_executor;
