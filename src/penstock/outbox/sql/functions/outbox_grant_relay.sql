-- A database installed without roles has some of them or none.
create or replace function app.outbox_grant_relay(p_name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_role text;
begin
    for v_role in
        select r.rolname from pg_roles r
        where r.rolname in ('penstock_outbox_ingest', 'penstock_operator', 'penstock_readonly',
                            'penstock_auditor')
    loop
        execute format('grant select (id, status, created_at, sent_at, retry_count, ordering_key, '
                       'last_error) on %s to %I', p_name::regclass, v_role);
        continue when v_role <> 'penstock_outbox_ingest';
        execute format('grant insert (id, payload, created_at, ordering_key) on %s to %I',
                       p_name::regclass, v_role);
    end loop;
    execute format('drop policy if exists readers on %s', p_name::regclass);
    execute format('create policy readers on %s for select using (true)', p_name::regclass);
    execute format('drop policy if exists producers on %s', p_name::regclass);
    execute format('create policy producers on %s for insert with check (true)', p_name::regclass);
    insert into public.outbox_relays (name) values (p_name) on conflict (name) do nothing;
end
$$;

comment on function app.outbox_grant_relay(text) is
    'Let producers insert into a relay table and people see its states; enter it in the list.';
revoke all on function app.outbox_grant_relay(text) from public;
