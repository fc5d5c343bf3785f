-- auth.uid() is the host's where it has one. Elsewhere the same is read from the request's verified
-- claims, through a function of ours: a schema named auth is not ours to make.
create or replace function penstock_ledger.install_policies() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_uid text := case when to_regprocedure('auth.uid()') is not null
                       then 'auth.uid()::text' else 'penstock_ledger.uid()' end;
    v_ours text;
begin
    drop policy if exists own_tickets on public.confirmed_tickets;
    execute format('create policy own_tickets on public.confirmed_tickets for select '
                   'using ((select %s) = user_id)', v_uid);
    select string_agg(quote_ident(rolname), ', ') into v_ours from pg_roles
    where rolname in ('penstock_operator', 'penstock_readonly', 'penstock_auditor', 'service_role');
    drop policy if exists readers on public.confirmed_tickets;
    drop policy if exists readers on public.reservation_outcomes;
    if v_ours is not null then
        execute format('create policy readers on public.confirmed_tickets for select to %s '
                       'using (true)', v_ours);
        execute format('create policy readers on public.reservation_outcomes for select to %s '
                       'using (true)', v_ours);
    end if;
end
$$;

comment on function penstock_ledger.install_policies() is
    'Row security of the ledger, for the roles that exist here.';
revoke all on function penstock_ledger.install_policies() from public;
