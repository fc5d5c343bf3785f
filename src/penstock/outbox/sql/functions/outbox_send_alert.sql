-- The first alert of a kind goes out at once, the next one an interval after the last. While it waits,
-- what dies meanwhile is added to it; one that somebody holds or that was tried already is left as it
-- is. Where no route takes alerts there is nobody to tell: the count waits for one.
create or replace function app.outbox_send_alert(
    p_queue text, p_topic text, p_state text, p_fingerprint text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := penstock.clock();
    v_every interval := make_interval(secs => coalesce(
        (select s.every_s from penstock.schedule s where s.job = 'outbox_alerts'), 300));
    v_kind public.outbox_alerts;
    v_at timestamptz;
    v_id uuid := penstock.uuidv7();
    v_seq bigint;
begin
    select * into v_kind from public.outbox_alerts a
    where a.queue = p_queue and a.topic = p_topic and a.state = p_state
      and a.fingerprint = p_fingerprint
    for update;
    if v_kind.unsent = 0 or not exists (
        select from public.outbox_routes r
        where r.enabled and app.outbox_matches(r.topic, 'penstock.alert')) then
        return;
    end if;
    select o.seq into v_seq from public.outbox o
    where o.id = v_kind.event_id and o.total_attempts = 0
      and (o.pos is not null or o.next_attempt_at is not null)
    for update skip locked;
    if found then
        update public.outbox o
        set payload = o.payload || jsonb_build_object(
                'count', (o.payload ->> 'count')::bigint + v_kind.unsent,
                'total', v_kind.total, 'last_at', v_kind.last_at)
        where o.seq = v_seq;
        update public.outbox_alerts a set unsent = 0
        where a.queue = p_queue and a.topic = p_topic and a.state = p_state
      and a.fingerprint = p_fingerprint;
        return;
    end if;
    v_at := greatest(v_kind.alerted_at + v_every, v_now);
    insert into public.outbox (id, tenant_id, topic, payload, pos, next_attempt_at)
    values (v_id, null, 'penstock.alert',
            jsonb_build_object(
                'queue', p_queue, 'topic', v_kind.topic, 'state', v_kind.state,
                'error_code', v_kind.error_code, 'error', v_kind.error,
                'fingerprint', v_kind.fingerprint, 'count', v_kind.unsent,
                'total', v_kind.total, 'examples', v_kind.examples,
                'first_at', v_kind.first_at, 'last_at', v_kind.last_at),
            case when v_at <= v_now then nextval('penstock.outbox_next') end,
            case when v_at > v_now then v_at end);
    update public.outbox_alerts a set unsent = 0, alerted_at = v_at, event_id = v_id
    where a.queue = p_queue and a.topic = p_topic and a.state = p_state
      and a.fingerprint = p_fingerprint;
end
$$;

comment on function app.outbox_send_alert(text, text, text, text) is
    'Publish an alert about a kind of dead items, or add to the one that waits.';
revoke all on function app.outbox_send_alert(text, text, text, text) from public;
