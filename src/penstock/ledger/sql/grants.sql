grant usage on schema public to penstock_ledger_writer, penstock_operator, penstock_readonly,
    penstock_auditor;
grant select on public.confirmed_tickets to authenticated, service_role, penstock_operator,
    penstock_auditor;
grant select on public.reservation_outcomes to service_role, penstock_operator, penstock_auditor;
grant select (resource_id, pool_id, confirmed_at, reservation_id) on public.confirmed_tickets
    to penstock_readonly;

-- A buyer sees own tickets; our own roles see all. There is no policy for writing: the functions
-- write, and nobody else.
select penstock_ledger.install_policies();

-- Realtime only where the host has it; adding a table needs the publication's owner, which is the
-- login and not the owner of our objects.
do $$
declare
    v_role text := current_setting('role');
begin
    if exists (select from pg_publication
               where pubname = 'supabase_realtime' and not puballtables)
       and not exists (select from pg_publication_tables
                       where pubname = 'supabase_realtime' and schemaname = 'public'
                         and tablename = 'confirmed_tickets') then
        perform set_config('role', 'none', true);
        begin
            alter publication supabase_realtime add table public.confirmed_tickets;
        exception when insufficient_privilege then
            raise warning 'confirmed_tickets is not in supabase_realtime: %', sqlerrm;
        end;
        perform set_config('role', v_role, true);
    end if;
end
$$;
