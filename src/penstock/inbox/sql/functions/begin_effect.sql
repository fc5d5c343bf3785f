-- Committed before the outside call, so that a crash in between leaves a trace. A second start gets
-- the key of the first; a done effect says so, and the caller leaves it alone.
create or replace function webhook.begin_effect(
    p_id uuid, p_token uuid, p_handler text, p_key text
) returns table (state text, idempotency_key text, external_ref text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_event record;
begin
    select e.webhook_id, e.event_id into v_event from public.webhook_events e
    where e.id = p_id and e.lease_token = p_token;
    if not found then
        raise exception using
            errcode = 'PN204',
            message = format('event %s was taken over by another worker', p_id),
            detail  = 'the effect was not begun';
    end if;
    return query
        insert into public.webhook_effects as f (webhook_id, event_id, handler, idempotency_key)
        values (v_event.webhook_id, v_event.event_id, p_handler, p_key)
        on conflict (webhook_id, event_id, handler) do update
            set starts = f.starts + case when f.state = 'started' then 1 else 0 end
        returning f.state, f.idempotency_key, f.external_ref;
end
$$;

comment on function webhook.begin_effect(uuid, uuid, text, text) is
    'Record that an outside call is about to be made; returns its key and whether it is done.';
revoke all on function webhook.begin_effect(uuid, uuid, text, text) from public;
grant execute on function webhook.begin_effect(uuid, uuid, text, text) to penstock_inbox_executor;
