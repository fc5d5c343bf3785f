create or replace function webhook.alert_dead(p_ids uuid[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    select penstock.alert('inbox', array_agg(d.id), array_agg(d.topic), array_agg(d.state),
                          array_agg(d.error_code), array_agg(d.error))
    from webhook.inbox_dead d where d.id = any (p_ids)
$$;

comment on function webhook.alert_dead(uuid[]) is 'Alert about events that have just died.';
revoke all on function webhook.alert_dead(uuid[]) from public;
