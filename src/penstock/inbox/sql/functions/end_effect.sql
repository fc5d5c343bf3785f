-- No token: the call was made and answered, which stays true when the lease is lost.
create or replace function webhook.end_effect(
    p_id uuid, p_handler text, p_key text, p_external_ref text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.webhook_effects f
    set state = 'done', done_at = penstock.clock(), external_ref = p_external_ref
    from public.webhook_events e
    where e.id = p_id and f.webhook_id = e.webhook_id and f.event_id = e.event_id
      and f.handler = p_handler and f.idempotency_key = p_key and f.state = 'started';
    return found;
end
$$;

comment on function webhook.end_effect(uuid, text, text, text) is
    'Record that an outside call was answered; false if it was recorded before.';
revoke all on function webhook.end_effect(uuid, text, text, text) from public;
grant execute on function webhook.end_effect(uuid, text, text, text) to penstock_inbox_executor;
