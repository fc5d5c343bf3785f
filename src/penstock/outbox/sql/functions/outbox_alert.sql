-- Called in the transaction that makes events dead or held, so that none of them is without its alert.
-- An alert that cannot be delivered is a dead letter itself and makes no further one. Beyond a hundred
-- kinds within an hour, the rest is one kind. Lock order: events, then kinds by name, then alerts, of
-- which a held one is left alone.
create or replace function app.outbox_alert(p_seqs bigint[]) returns void
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
            select o.seq, coalesce(o.event_topic, o.topic) as topic,
                   case when o.dead_at is not null then 'DEAD' else 'HELD' end as state,
                   penstock.fingerprint(o.error_code, o.error) as fingerprint,
                   o.error_code, left(o.error, 300) as error, coalesce(o.event_id, o.id) as id
            from public.outbox o where o.seq = any (p_seqs)
        ), known as (
            select e.*, v_many and not exists (
                    select from public.outbox_alerts a
                    where a.topic = e.topic and a.state = e.state
                      and a.fingerprint = e.fingerprint) as other
            from ended e where e.topic <> 'penstock.alert'
        )
        insert into public.outbox_alerts as a
            (topic, state, fingerprint, error_code, error, total, unsent, examples, first_at, last_at)
        select case when k.other then '*' else k.topic end, k.state,
               case when k.other then '*' else k.fingerprint end,
               min(k.error_code), min(k.error), count(*), count(*),
               (array_agg(k.id order by k.seq))[1:5], v_now, v_now
        from known k
        group by 1, 2, 3
        order by 1, 2, 3
        on conflict (topic, state, fingerprint) do update
            set error_code = excluded.error_code, error = excluded.error, last_at = excluded.last_at,
                total = a.total + excluded.total, unsent = a.unsent + excluded.unsent,
                examples = case when a.unsent = 0 then excluded.examples else a.examples end
        returning a.topic, a.state, a.fingerprint
    loop
        perform app.outbox_send_alert(v_kind.topic, v_kind.state, v_kind.fingerprint);
    end loop;
end
$$;

comment on function app.outbox_alert(bigint[]) is
    'Count events that died or are held by kind, and publish an alert for each kind.';
revoke all on function app.outbox_alert(bigint[]) from public;
