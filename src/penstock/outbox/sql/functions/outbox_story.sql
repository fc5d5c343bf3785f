create or replace function app.outbox_story(p_id uuid, p_payload boolean default false)
returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
        'queue', 'outbox', 'id', e.id, 'topic', e.topic, 'state', e.state,
        'created_at', e.created_at, 'delivered_at', e.delivered_at, 'dead_at', e.dead_at,
        'held_at', e.held_at, 'error_code', e.error_code, 'error', e.error,
        'total_attempts', e.total_attempts, 'replay_count', e.replay_count, 'headers', e.headers,
        'payload', case when p_payload then e.payload end,
        'attempts', (select coalesce(jsonb_agg(jsonb_build_object(
                'epoch', a.lease_epoch, 'ended_at', a.ended_at, 'outcome', a.outcome,
                'error_code', a.error_code, 'error', a.error) order by a.lease_epoch), '[]')
            from public.outbox_attempts a where a.event_id = p_id),
        'deliveries', (select coalesce(jsonb_agg(jsonb_build_object(
                'id', d.delivery_id, 'route', d.route, 'state', d.state,
                'total_attempts', d.total_attempts, 'delivered_at', d.delivered_at,
                'error_code', d.error_code) order by d.route), '[]')
            from app.outbox_deliveries d where d.event_id = p_id),
        'late_results', (select coalesce(jsonb_agg(jsonb_build_object(
                'recorded_at', l.recorded_at, 'verdict', l.verdict, 'code', l.code)
                order by l.id), '[]')
            from penstock.late_results l where l.item_id = p_id),
        'audit', (select coalesce(jsonb_agg(jsonb_build_object(
                'id', a.id, 'at', a.at, 'operation', a.operation, 'actor', a.actor,
                'operator', a.operator, 'reason', a.reason) order by a.at), '[]')
            from audit.audit_logs a
            where a.table_name = 'public.outbox' and a.row_data ->> 'id' = p_id::text))
    from app.outbox_all e
    where e.id = p_id
$$;

comment on function app.outbox_story(uuid, boolean) is
    'Everything known about one event, for penstock.story; the payload only if asked for.';
revoke all on function app.outbox_story(uuid, boolean) from public;
