-- The seed's way to end an attempt, on the session that claimed. A lost lease raises, which undoes
-- whatever the caller wrote in the same transaction.
create or replace function webhook.mark_event_result(
    p_id uuid, p_status public.webhook_event_status, p_error text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_token uuid := nullif(current_setting('penstock.lease_token', true), '')::uuid;
begin
    if v_token is null or not webhook.mark_event_result(p_id, p_status, p_error, v_token) then
        raise exception using
            errcode = 'PN204',
            message = format('this session does not hold the lease of event %s', p_id),
            detail  = 'it was claimed by another session, or its lease has ended meanwhile',
            hint    = 'call claim_next_event and mark_event_result on one connection, or pass the '
                      'token as the fourth argument';
    end if;
end
$$;

comment on function webhook.mark_event_result(uuid, public.webhook_event_status, text) is
    'End the attempt that this session claimed; raises PN204 if the lease is not its own.';
revoke all on function webhook.mark_event_result(uuid, public.webhook_event_status, text)
    from public;
grant execute on function webhook.mark_event_result(uuid, public.webhook_event_status, text)
    to penstock_inbox_executor;
