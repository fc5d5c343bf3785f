create or replace function webhook.inbox_story(p_id uuid, p_payload boolean default false)
returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
        'queue', 'inbox', 'id', e.id, 'topic', e.source || '/' || e.event_type, 'state', e.state,
        'webhook_id', e.webhook_id, 'event_id', e.event_id, 'provider', e.provider,
        'created_at', e.received_at, 'processed_at', e.processed_at, 'dead_at', e.dead_at,
        'error_code', e.error_code, 'error', e.error, 'total_attempts', e.total_attempts,
        'replay_count', e.replay_count, 'headers', e.headers,
        'body_sha256', encode(e.body_sha256, 'hex'),
        'payload', case when p_payload then e.payload end,
        'attempts', (select coalesce(jsonb_agg(jsonb_build_object(
                'epoch', a.lease_epoch, 'ended_at', a.ended_at, 'outcome', a.outcome,
                'error_code', a.error_code, 'error', a.error) order by a.lease_epoch), '[]')
            from public.webhook_attempts a where a.id = p_id),
        'effects', (select coalesce(jsonb_agg(jsonb_build_object(
                'handler', f.handler, 'state', f.state, 'idempotency_key', f.idempotency_key,
                'external_ref', f.external_ref, 'starts', f.starts) order by f.started_at), '[]')
            from public.webhook_effects f
            where f.webhook_id = e.webhook_id and f.event_id = e.event_id),
        'late_results', (select coalesce(jsonb_agg(jsonb_build_object(
                'recorded_at', l.recorded_at, 'verdict', l.verdict, 'code', l.code)
                order by l.id), '[]')
            from penstock.late_results l where l.item_id = p_id),
        'audit', (select coalesce(jsonb_agg(jsonb_build_object(
                'id', a.id, 'at', a.at, 'operation', a.operation, 'actor', a.actor,
                'operator', a.operator, 'reason', a.reason) order by a.at), '[]')
            from audit.audit_logs a
            where a.table_name = 'public.webhook_events' and a.row_data ->> 'id' = p_id::text))
    from webhook.inbox_all e
    where e.id = p_id
$$;

comment on function webhook.inbox_story(uuid, boolean) is
    'Everything known about one event, for penstock.story; the payload only if asked for.';
revoke all on function webhook.inbox_story(uuid, boolean) from public;
