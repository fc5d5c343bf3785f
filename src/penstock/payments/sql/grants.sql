grant usage on schema public to penstock_payments_ingest, penstock_payments_executor,
    penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
grant usage on schema penstock_payments to penstock_operator, penstock_control, penstock_readonly,
    penstock_auditor;

-- Ingest has functions only. The executor has the seed's rights on the tables; triggers see to it
-- that it can neither invent nor change a payment.
revoke all on public.participant_outbox_sequences, public.payment_outbox_registry,
    public.payment_outbox_pending, public.payment_outbox_inflight, public.payment_outbox_attempts,
    public.payment_chain from public;
grant select, insert, update, delete on public.payment_outbox_pending to penstock_payments_executor;
grant select, insert on public.payment_outbox_attempts to penstock_payments_executor;
grant select on public.payment_outbox_inflight, public.payment_rails, public.payment_rail_codes
    to penstock_payments_executor;

grant select on public.payment_outbox_pending, public.payment_outbox_attempts,
    public.participant_outbox_sequences, public.payment_outbox_inflight,
    public.payment_outbox_registry to penstock_control;
grant select on public.payment_outbox_registry, public.payment_rails, public.payment_rail_codes,
    public.payment_chain, public.supervisor_outbox_status, public.payment_repeated_instructions,
    penstock_payments.dead, penstock_payments.stats, penstock_payments.policy,
    penstock_payments.approvals, penstock_payments.currencies, penstock_payments.chain_mark
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;

-- Who looks after payments need not read whom they pay: payloads are read by story, with a reason.
grant select (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
    attempt_count, next_attempt_at, created_at, uncounted, claim_code, first_sent_at)
    on public.payment_outbox_pending to penstock_operator, penstock_readonly, penstock_auditor;
grant select (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
    created_at, attempt_no, uncounted, claimed_at, lease_epoch, lease_owner, lease_expires_at, phase,
    sent_at, first_sent_at, late_at, late_reference, late_code, held_at, error_code, error_message)
    on public.payment_outbox_inflight to penstock_operator, penstock_readonly, penstock_auditor;
grant select (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,
    rail_type, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code, error_code,
    error_message, latency_ms, created_at, lease_owner)
    on public.payment_outbox_attempts to penstock_operator, penstock_readonly, penstock_auditor;
revoke all on public.participant_outbox_sequences from penstock_readonly, penstock_auditor;
revoke update, delete, truncate on public.payment_outbox_attempts from public,
    penstock_payments_ingest, penstock_payments_executor, penstock_operator, penstock_control,
    penstock_readonly, penstock_auditor;
revoke truncate on public.payment_outbox_pending from public, penstock_payments_ingest,
    penstock_payments_executor, penstock_operator, penstock_control, penstock_readonly,
    penstock_auditor;

-- Row security keeps everyone out who has no policy, whatever a later grant might say: the counters
-- stay closed to readers even after a blanket grant on the schema.
do $$
declare
    v_table text;
    v_role text;
    v_command text;
begin
    foreach v_table in array array[
        'public.payment_outbox_registry', 'public.payment_outbox_pending',
        'public.payment_outbox_inflight', 'public.payment_outbox_attempts', 'public.payment_rails',
        'public.payment_rail_codes', 'public.payment_chain', 'penstock_payments.chain_mark',
        'penstock_payments.policy', 'penstock_payments.approvals', 'penstock_payments.currencies'
    ] loop
        execute format('drop policy if exists readers on %s', v_table);
        execute format('create policy readers on %s for select using (true)', v_table);
    end loop;
    for v_table, v_role, v_command in values
        ('public.participant_outbox_sequences', 'penstock_control', 'select to %I using (true)'),
        ('public.payment_outbox_pending', 'penstock_payments_executor',
         'all to %I using (true) with check (true)'),
        ('public.payment_outbox_attempts', 'penstock_payments_executor',
         'insert to %I with check (true)')
    loop
        execute format('drop policy if exists writers on %s', v_table);
        continue when not exists (select from pg_roles where rolname = v_role);
        execute format('create policy writers on %s for ' || v_command, v_table, v_role);
    end loop;
end
$$;

insert into penstock.queue (queue, product, dead_view, stats_view, replay, discard, story, kinds)
values ('payments', 'payments', 'penstock_payments.dead', 'penstock_payments.stats',
        'public.payment_replay', 'public.payment_discard', 'public.payment_story',
        array['rail', 'participant'])
on conflict (queue) do update set kinds = excluded.kinds;
select public.payment_partitions();
select penstock.put_job('payments_reap', 15);
select penstock.put_job('payments_partitions', 86400);
select penstock.put_job('payments_chain', 60);
select penstock.put_job('payments_resolve', 30);
