-- The first of two transactions with the same key decides; the second waits for its end. Headers are
-- not part of the content: they carry the trace of the call, which differs in a repetition.
create or replace function app.outbox_remember(
    p_id uuid, p_topic text, p_tenant uuid, p_key text, p_payload jsonb
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_digest bytea := sha256(convert_to(p_payload::text, 'UTF8'));
    v_known record;
begin
    if length(p_key) not between 1 and 200 then
        raise exception using errcode = 'PN401', message = 'a dedupe key has 1 to 200 characters';
    end if;
    loop
        insert into public.outbox_dedupe as d (dedupe_key, topic, tenant_id, event_id, digest)
        values (p_key, p_topic, p_tenant, p_id, v_digest)
        on conflict (dedupe_key, topic, tenant_id) do nothing;
        if found then
            return null;
        end if;
        select d.event_id, d.digest into v_known from public.outbox_dedupe d
        where d.dedupe_key = p_key and d.topic = p_topic
          and d.tenant_id is not distinct from p_tenant;
        exit when found;  -- else it was purged in this moment
    end loop;
    if v_known.digest <> v_digest then
        raise exception using
            errcode = 'PN402',
            message = format('dedupe key %L of topic %s was published with other content',
                             p_key, p_topic),
            detail  = format('the event published first is %s', v_known.event_id),
            hint    = 'use one key per fact';
    end if;
    return v_known.event_id;
end
$$;

comment on function app.outbox_remember(uuid, text, uuid, text, jsonb) is
    'The id of the event that already owns a dedupe key; null if the key is new, and now taken.';
revoke all on function app.outbox_remember(uuid, text, uuid, text, jsonb) from public;
