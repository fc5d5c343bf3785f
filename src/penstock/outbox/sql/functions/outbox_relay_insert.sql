create or replace function app.outbox_relay_insert() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if new.status = 'PENDING' then
        insert into public.outbox (id, topic, payload, created_at, ordering_key, relay)
        values (new.id, tg_table_schema || '.' || tg_table_name, new.payload, new.created_at,
                new.ordering_key, tg_table_schema || '.' || tg_table_name);
    end if;
    return null;
end
$$;

comment on function app.outbox_relay_insert() is
    'Trigger: publish a row of a relay table as an event with its id, to the topic of its name.';
revoke all on function app.outbox_relay_insert() from public;
