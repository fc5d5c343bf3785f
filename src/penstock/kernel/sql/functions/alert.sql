-- For products beside the outbox, in the transaction that makes items dead or held. An alert is an event
-- of the outbox: without one in this database there is nobody to hand it to. A schema `app` may be
-- somebody else's: only a function of our own owner is called with our rights, and asking for it by
-- the catalogue needs no right on that schema.
create or replace function penstock.alert(
    p_queue text, p_ids uuid[], p_topics text[], p_states text[], p_codes text[], p_errors text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if cardinality(p_ids) > 0 and exists (
        select from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace
        join pg_roles r on r.oid = p.proowner
        where n.nspname = 'app' and p.proname = 'outbox_alert_items' and r.rolname = current_user
          and p.proargtypes = concat_ws(' ', 'text'::regtype::oid, 'uuid[]'::regtype::oid,
              'text[]'::regtype::oid, 'text[]'::regtype::oid, 'text[]'::regtype::oid,
              'text[]'::regtype::oid)::oidvector) then
        perform app.outbox_alert_items(p_queue, p_ids, p_topics, p_states, p_codes, p_errors);
    end if;
end
$$;

comment on function penstock.alert(text, uuid[], text[], text[], text[], text[]) is
    'Alert about dead and held items of a queue, where the outbox is installed.';
revoke all on function penstock.alert(text, uuid[], text[], text[], text[], text[]) from public;
