-- Append-only by constraint, not by custom. ENABLE ALWAYS: also under session_replication_role.
create or replace trigger audit_logs_append_only
    before update or delete on audit.audit_logs
    for each row execute function penstock.refuse_change();
alter table audit.audit_logs enable always trigger audit_logs_append_only;

create or replace trigger audit_logs_no_truncate
    before truncate on audit.audit_logs
    for each statement execute function penstock.refuse_change();
alter table audit.audit_logs enable always trigger audit_logs_no_truncate;

create or replace trigger late_results_append_only
    before update or delete on penstock.late_results
    for each row execute function penstock.refuse_change();
alter table penstock.late_results enable always trigger late_results_append_only;

create or replace trigger late_results_no_truncate
    before truncate on penstock.late_results
    for each statement execute function penstock.refuse_change();
alter table penstock.late_results enable always trigger late_results_no_truncate;
