create or replace function webhook.mark_event_result(
    p_id uuid, p_status public.webhook_event_status, p_error text, p_token uuid
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_code text := case when p_error ~ '^[a-z][a-z0-9_]{2,59}$' then p_error
        else 'handler_error' end;
begin
    if p_status = 'processing' then
        raise exception using errcode = 'PN201',
            message = 'an attempt ends in success, failed, pending or dead_letter';
    end if;
    if p_status = 'success' then
        return not exists (
            select from webhook.inbox_finish(array[p_id], array[p_token]));
    end if;
    return not exists (
        select from webhook.inbox_mark_failed(
            array[p_id], array[p_token],
            array[case when p_status = 'dead_letter' then 'reject' else 'retry' end],
            array[null::double precision], array[v_code], array[p_error]));
end
$$;

comment on function webhook.mark_event_result(uuid, public.webhook_event_status, text, uuid) is
    'End an attempt by its token, on any connection; false if the lease was lost.';
revoke all on function webhook.mark_event_result(uuid, public.webhook_event_status, text, uuid)
    from public;
grant execute on function webhook.mark_event_result(uuid, public.webhook_event_status, text, uuid)
    to penstock_inbox_executor;
