-- For products beside the outbox, in the transaction that makes items dead or held. An alert is an event
-- of the outbox: without one in this database there is nobody to hand it to.
create or replace function penstock.alert(
    p_queue text, p_ids uuid[], p_topics text[], p_states text[], p_codes text[], p_errors text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if cardinality(p_ids) > 0 and to_regprocedure(
        'app.outbox_alert_items(text, uuid[], text[], text[], text[], text[])') is not null then
        perform app.outbox_alert_items(p_queue, p_ids, p_topics, p_states, p_codes, p_errors);
    end if;
end
$$;

comment on function penstock.alert(text, uuid[], text[], text[], text[], text[]) is
    'Alert about dead and held items of a queue, where the outbox is installed.';
revoke all on function penstock.alert(text, uuid[], text[], text[], text[], text[]) from public;
