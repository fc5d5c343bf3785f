grant usage on schema app to penstock_outbox_ingest, penstock_outbox_executor, penstock_operator,
    penstock_readonly, penstock_auditor, penstock_control;
-- Plain SQL producers may insert; every other change goes through a function.
grant insert (id, tenant_id, topic, payload, headers, created_at, ordering_key) on public.outbox
    to penstock_outbox_ingest;
grant usage on sequence penstock.outbox_next to penstock_outbox_ingest;
grant select on app.outbox_stats, app.outbox_dead, app.outbox_blocked_keys,
    app.outbox_destination_stats, app.outbox_dead_destinations
    to penstock_operator, penstock_readonly, penstock_auditor, penstock_control;
-- Payloads are not among the columns: penstock.story shows one, to operators, and audits it.
grant select (seq, id, tenant_id, topic, created_at, ordering_key, total_attempts, replay_count,
    delivered_at, dead_at, held_at, error_code, error, state, route, event_id)
    on app.outbox_all to penstock_operator, penstock_auditor;
grant select on public.outbox_destinations, public.outbox_routes, public.outbox_schemas,
    public.outbox_functions, app.outbox_deliveries
    to penstock_operator, penstock_readonly, penstock_auditor, penstock_control;
grant select on public.outbox_alerts, public.outbox_resends, public.outbox_removals
    to penstock_operator, penstock_readonly, penstock_auditor;
grant select on public.outbox_attempts to penstock_operator, penstock_auditor;

do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'public.outbox', 'public.outbox_archive', 'public.outbox_archive_default',
        'public.outbox_attempts', 'public.outbox_attempts_default', 'public.outbox_key_checks',
        'public.outbox_dedupe', 'public.outbox_destinations', 'public.outbox_routes',
        'public.outbox_relays', 'public.outbox_schemas', 'public.outbox_removals',
        'public.outbox_functions', 'public.outbox_alerts', 'public.outbox_resends',
        'public.outbox_joint_leases'
    ] loop
        execute format('drop policy if exists readers on %s', v_table);
        execute format('create policy readers on %s for select using (true)', v_table);
    end loop;
end
$$;
drop policy if exists producers on public.outbox;
create policy producers on public.outbox for insert
    with check ((app.current_tenant() is null or tenant_id = app.current_tenant())
                and case when topic like 'penstock.%' then app.outbox_check_topic(topic) else true end);
-- Entered by those who publish; what an identity means is asked of app.resolve_identity.
grant insert (tenant_id, contact_id, type, value) on public.contact_identities
    to penstock_outbox_ingest;
drop policy if exists tenants on public.contact_identities;
create policy tenants on public.contact_identities
    using (app.current_tenant() is null or tenant_id = app.current_tenant());

insert into penstock.queue (queue, product, dead_view, stats_view, replay, discard, story, kinds)
values ('outbox', 'outbox', 'app.outbox_dead', 'app.outbox_stats',
        'app.outbox_replay', 'app.outbox_discard', 'app.outbox_story',
        array['topic', 'destination', 'tenant'])
on conflict (queue) do update set kinds = excluded.kinds;
grant usage on schema relay to penstock_operator, penstock_readonly, penstock_auditor;
grant select (source, id, route, retry_count, last_error, moved_at, alerted_at)
    on relay.dead_letters to penstock_operator, penstock_readonly, penstock_auditor;
grant usage on schema payments, ledger to penstock_outbox_ingest, penstock_operator,
    penstock_readonly, penstock_auditor;
select app.outbox_grant_relay(r) from unnest(
    array['payments.outbox_transfers', 'ledger.outbox_ledger']) as r;
select penstock.put_job('outbox_purge_relays', 86400);
select app.outbox_partitions();
select penstock.put_job('outbox_partitions', 3600);
select penstock.put_job('outbox_check_keys', 600);
select penstock.put_job('outbox_purge_dedupe', 600);
select penstock.put_job('outbox_removals', 60);
select penstock.put_job('outbox_alerts', 300);
