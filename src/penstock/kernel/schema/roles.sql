-- Creates the groups that are missing and lets the migrating login act as their owner. Needs
-- CREATEROLE, nothing more. Roles belong to the whole cluster: another database may be creating the
-- same ones at this moment, so being second is no error.
do $roles$
declare
    v_role text;
    v_grant record;
begin
    foreach v_role in array array[
        'penstock_owner',
        'penstock_intake_ingest', 'penstock_intake_executor',
        'penstock_outbox_ingest', 'penstock_outbox_executor',
        'penstock_payments_ingest', 'penstock_payments_executor',
        'penstock_inbox_ingest', 'penstock_inbox_executor',
        'penstock_ledger_writer', 'penstock_operator', 'penstock_control',
        'penstock_readonly', 'penstock_auditor'
    ] loop
        continue when exists (select from pg_catalog.pg_roles where rolname = v_role);
        begin
            execute format('create role %I nologin', v_role);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;

    -- From version 16 on the creator of a role administers it but is not yet a member of it.
    if (select not rolsuper from pg_catalog.pg_roles where rolname = current_user) then
        if current_setting('server_version_num')::integer < 160000 then
            if not pg_has_role(current_user, 'penstock_owner', 'member') then
                execute format('grant penstock_owner to %I', current_user);
            end if;
        elsif not (pg_has_role(current_user, 'penstock_owner', 'set')
                   and pg_has_role(current_user, 'penstock_owner', 'usage')) then
            execute format('grant penstock_owner to %I with inherit true, set true', current_user);
        end if;
    end if;

    -- Where Supabase's roles exist they join our groups; they themselves are never altered.
    for v_grant in
        select ours.rolname as ours, theirs.rolname as theirs
        from (values
            ('penstock_intake_ingest', 'authenticated'), ('penstock_intake_ingest', 'service_role'),
            ('penstock_intake_executor', 'service_role'),
            ('penstock_outbox_ingest', 'service_role'), ('penstock_outbox_executor', 'service_role'),
            ('penstock_payments_ingest', 'service_role'),
            ('penstock_payments_executor', 'service_role'),
            ('penstock_inbox_ingest', 'service_role'), ('penstock_inbox_executor', 'service_role')
        ) as wanted (ours, theirs)
        join pg_catalog.pg_roles ours on ours.rolname = wanted.ours
        join pg_catalog.pg_roles theirs on theirs.rolname = wanted.theirs
        where not pg_has_role(theirs.oid, ours.oid, 'member')
    loop
        begin
            execute format('grant %I to %I', v_grant.ours, v_grant.theirs);
        exception when insufficient_privilege then
            raise warning 'could not grant % to %: %', v_grant.ours, v_grant.theirs, sqlerrm;
        end;
    end loop;
end
$roles$;
