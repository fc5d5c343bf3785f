-- Called in the transaction that makes items of a queue dead or held, so that none of them is without
-- its alert. Beyond a hundred kinds within an hour, the rest is one kind of each queue. Lock order:
-- items, then kinds by name, then alerts, of which a held one is left alone.
create or replace function app.outbox_alert_items(
    p_queue text, p_ids uuid[], p_topics text[], p_states text[], p_codes text[], p_errors text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := penstock.clock();
    v_many boolean := (select count(*) >= 100 from public.outbox_alerts a
                       where a.last_at > v_now - interval '1 hour');
    v_kind record;
begin
    for v_kind in
        with ended as (
            select i.place, i.id, coalesce(i.topic, '') as topic, i.state,
                   penstock.fingerprint(i.code, i.error) as fingerprint, i.code,
                   left(i.error, 300) as error
            from unnest(p_ids, p_topics, p_states, p_codes, p_errors) with ordinality
                 as i (id, topic, state, code, error, place)
        ), known as (
            select e.*, v_many and not exists (
                    select from public.outbox_alerts a
                    where a.queue = p_queue and a.topic = e.topic and a.state = e.state
                      and a.fingerprint = e.fingerprint) as other
            from ended e
        )
        insert into public.outbox_alerts as a
            (queue, topic, state, fingerprint, error_code, error, total, unsent, examples, first_at,
             last_at)
        select p_queue, case when k.other then '*' else k.topic end, k.state,
               case when k.other then '*' else k.fingerprint end,
               min(k.code), min(k.error), count(*), count(*),
               (array_agg(k.id order by k.place))[1:5], v_now, v_now
        from known k
        group by 2, 3, 4
        order by 2, 3, 4
        on conflict (queue, topic, state, fingerprint) do update
            set error_code = excluded.error_code, error = excluded.error, last_at = excluded.last_at,
                total = a.total + excluded.total, unsent = a.unsent + excluded.unsent,
                examples = case when a.unsent = 0 then excluded.examples else a.examples end
        returning a.topic, a.state, a.fingerprint
    loop
        perform app.outbox_send_alert(p_queue, v_kind.topic, v_kind.state, v_kind.fingerprint);
    end loop;
end
$$;

comment on function app.outbox_alert_items(text, uuid[], text[], text[], text[], text[]) is
    'Count dead and held items of a queue by kind, and publish an alert for each kind.';
revoke all on function app.outbox_alert_items(text, uuid[], text[], text[], text[], text[])
    from public;
