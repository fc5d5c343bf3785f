-- Names become identifiers, so they are checked. The schema must exist and be ours to create in.
create or replace function app.outbox_create_relay(
    p_schema text, p_table text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_schema !~ '^[a-z][a-z0-9_]{0,40}$' or p_table !~ '^[a-z][a-z0-9_]{0,40}$' then
        raise exception using
            errcode = 'PN005', message = 'schema and table have lower-case letters, digits and _';
    end if;
    execute format('create table %I.%I (like payments.outbox_transfers including all)',
                   p_schema, p_table);
    execute format('comment on table %I.%I is %L', p_schema, p_table, 'A relay table of the outbox');
    execute format('alter table %I.%I enable row level security', p_schema, p_table);
    execute format('create trigger outbox_relay_insert after insert on %I.%I '
                   'for each row execute function app.outbox_relay_insert()', p_schema, p_table);
    perform app.outbox_grant_relay(p_schema || '.' || p_table);
    return audit.record('create', p_schema || '.' || p_table, '{}', p_reason, p_operator);
end
$$;

comment on function app.outbox_create_relay(text, text, text, text) is
    'Create a further relay table in the shape of payments.outbox_transfers; audited.';
revoke all on function app.outbox_create_relay(text, text, text, text) from public;
grant execute on function app.outbox_create_relay(text, text, text, text) to penstock_control;
