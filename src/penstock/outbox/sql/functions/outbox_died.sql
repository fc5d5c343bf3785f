-- Where no worker is there to tell: the reaper, and events that no route takes.
create or replace function app.outbox_died(p_seqs bigint[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
    perform app.outbox_alert(p_seqs);
    perform penstock.note_deaths('outbox', array_agg(o.id order by o.seq),
        array_agg(coalesce(o.event_topic, o.topic) order by o.seq),
        array_agg(o.attempts order by o.seq), array_agg(o.error_code order by o.seq))
    from public.outbox o where o.seq = any (p_seqs);
end
$$;

comment on function app.outbox_died(bigint[]) is 'Alert about events that have just died, and note them.';
revoke all on function app.outbox_died(bigint[]) from public;
