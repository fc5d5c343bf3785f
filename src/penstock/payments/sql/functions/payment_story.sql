-- Reached through penstock.story, which lets operators only read a payload and audits it.
create or replace function public.payment_story(p_id uuid, p_payload boolean default false)
returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
        'queue', 'payments', 'id', r.outbox_id, 'topic', r.rail_type,
        'state', penstock_payments.state_of(r.outbox_id, r.terminal_state),
        'instruction_id', r.instruction_id, 'idempotency_key', r.idempotency_key,
        'participant_id', r.participant_id, 'sequence_id', r.sequence_id,
        'payload_sha256', encode(r.payload_sha256, 'hex'), 'created_at', r.created_at,
        'first_sent_at', coalesce(i.first_sent_at, p.first_sent_at, r.first_sent_at),
        'next_attempt_at', p.next_attempt_at, 'lease_expires_at', i.lease_expires_at,
        'phase', i.phase, 'held_at', i.held_at, 'error_code', i.error_code,
        'error', i.error_message, 'terminal_at', r.terminal_at, 'discarded_at', r.discarded_at,
        'reconciled_at', r.reconciled_at, 'replay_count', r.replay_count,
        'headers', coalesce(p.headers, i.headers),
        'payload', case when p_payload then coalesce(p.payload, i.payload, (
            select a.payload from public.payment_outbox_attempts a
            where a.outbox_id = p_id order by a.attempt_no limit 1)) end,
        'attempts', (select coalesce(jsonb_agg(jsonb_build_object(
                'attempt_no', a.attempt_no, 'state', a.state, 'claimed_at', a.claimed_at,
                'completed_at', a.completed_at, 'rail_reference', a.rail_reference,
                'rail_code', a.rail_code, 'error_code', a.error_code, 'error', a.error_message,
                'latency_ms', a.latency_ms, 'owner', a.lease_owner, 'link_no', c.link_no)
                order by a.attempt_no), '[]')
            from public.payment_outbox_attempts a
            left join public.payment_chain c on c.attempt_id = a.attempt_id
            where a.outbox_id = p_id),
        'late_results', (select coalesce(jsonb_agg(jsonb_build_object(
                'recorded_at', l.recorded_at, 'verdict', l.verdict, 'code', l.code)
                order by l.id), '[]')
            from penstock.late_results l where l.item_id = p_id),
        'audit', (select coalesce(jsonb_agg(jsonb_build_object(
                'id', a.id, 'at', a.at, 'operation', a.operation, 'actor', a.actor,
                'operator', a.operator, 'reason', a.reason) order by a.at), '[]')
            from audit.audit_logs a
            where a.table_name = 'public.payment_outbox_registry'
              and a.row_data ->> 'id' = p_id::text))
    from public.payment_outbox_registry r
    left join public.payment_outbox_pending p on p.outbox_id = r.outbox_id
    left join public.payment_outbox_inflight i on i.outbox_id = r.outbox_id
    where r.outbox_id = p_id
$$;

comment on function public.payment_story(uuid, boolean) is
    'Everything known about one payment; the payload only if asked for.';
revoke all on function public.payment_story(uuid, boolean) from public;
