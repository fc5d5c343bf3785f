-- Where no worker is there to tell: the reaper, and events that are dead on arrival.
create or replace function webhook.note_dead(p_ids uuid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
    perform webhook.alert_dead(p_ids);
    perform penstock.note_deaths('inbox', array_agg(d.id), array_agg(d.topic),
                                 array_agg(d.attempts), array_agg(d.error_code))
    from webhook.inbox_dead d where d.id = any (p_ids);
end
$$;

comment on function webhook.note_dead(uuid[]) is
    'Alert about events that have just died, and note them.';
revoke all on function webhook.note_dead(uuid[]) from public;
