-- An alert that cannot be delivered is a dead letter itself and makes no further one.
create or replace function app.outbox_alert(p_seqs bigint[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    select app.outbox_alert_items(
        'outbox', array_agg(e.id), array_agg(e.topic), array_agg(e.state), array_agg(e.error_code),
        array_agg(e.error))
    from (select coalesce(o.event_id, o.id) as id, coalesce(o.event_topic, o.topic) as topic,
                 case when o.dead_at is not null then 'DEAD' else 'HELD' end as state,
                 o.error_code, o.error
          from public.outbox o where o.seq = any (p_seqs)
          order by o.seq) e
    where e.topic <> 'penstock.alert'
$$;

comment on function app.outbox_alert(bigint[]) is 'Alert about events that died or are held.';
revoke all on function app.outbox_alert(bigint[]) from public;
