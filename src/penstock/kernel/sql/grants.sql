grant usage on schema penstock to
    penstock_outbox_ingest, penstock_outbox_executor, penstock_intake_ingest,
    penstock_intake_executor, penstock_payments_ingest, penstock_payments_executor,
    penstock_inbox_ingest, penstock_inbox_executor, penstock_ledger_writer,
    penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant usage on schema audit to penstock_operator, penstock_auditor;

grant select on penstock.migration to
    penstock_outbox_ingest, penstock_outbox_executor, penstock_intake_ingest,
    penstock_intake_executor, penstock_payments_ingest, penstock_payments_executor,
    penstock_inbox_ingest, penstock_inbox_executor, penstock_ledger_writer,
    penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant select on penstock.catalog to penstock_operator, penstock_auditor;
grant select on penstock.queue, penstock.queue_config, penstock.worker, penstock.pause,
    penstock.schedule, penstock.late_results, penstock.deaths, penstock.position
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant select on audit.audit_logs to penstock_operator, penstock_auditor;

-- Row security keeps everyone out who has no policy, whatever a later grant might say.
do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'penstock.migration', 'penstock.catalog', 'penstock.queue', 'penstock.queue_config',
        'penstock.worker', 'penstock.late_results', 'penstock.pause', 'penstock.schedule',
        'penstock.deaths', 'penstock.position', 'audit.audit_logs'
    ] loop
        execute format('drop policy if exists readers on %s', v_table);
        execute format('create policy readers on %s for select using (true)', v_table);
    end loop;
end
$$;
