create or replace function public.intake_story(p_id uuid, p_payload boolean default false)
returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
        'queue', 'intake', 'id', p_id, 'topic', coalesce(s.pool_id, r.pool_id),
        'state', case when d.msg_id is not null then 'DEAD' when q.msg_id is not null
                      and q.vt > penstock.clock() then 'LEASED' when q.msg_id is not null
                      then 'READY' when s.status = 'CONSUMED' then 'DONE'
                      when r.id is not null then 'RELEASED' else s.status::text end,
        'resource_id', coalesce(s.id, r.id), 'created_at', coalesce(s.locked_at, r.locked_at),
        'validated_at', s.validated_at, 'consumed_at', s.consumed_at,
        'commit_started_at', coalesce(s.commit_started_at, r.commit_started_at),
        'hold_expires_at', s.hold_expires_at, 'replaced_by', r.replaced_by,
        'msg_id', coalesce(q.msg_id, d.msg_id), 'read_ct', q.read_ct, 'vt', q.vt,
        'error_code', coalesce(d.headers, q.headers) ->> 'error_code',
        'error', coalesce(d.headers, q.headers) ->> 'error',
        'headers', coalesce(s.headers, q.headers, d.headers),
        'payload', case when p_payload then coalesce(q.message, d.message) end,
        'late_results', (select coalesce(jsonb_agg(jsonb_build_object(
                'recorded_at', l.recorded_at, 'verdict', l.verdict, 'code', l.code)
                order by l.id), '[]')
            from penstock.late_results l where l.item_id = p_id),
        'audit', (select coalesce(jsonb_agg(jsonb_build_object(
                'id', a.id, 'at', a.at, 'operation', a.operation, 'actor', a.actor,
                'operator', a.operator, 'reason', a.reason) order by a.at), '[]')
            from audit.audit_logs a
            where a.table_name = 'pgmq.q_intake_dlq' and a.row_data ->> 'id' = p_id::text))
    from (select) as one
    left join public.inventory_slots s on s.reservation_id = p_id
    left join penstock_intake.retired_slots r on r.reservation_id = p_id
    left join pgmq.q_intake_queue q on q.message ->> 'reservation_id' = p_id::text
    left join pgmq.q_intake_dlq d on d.message ->> 'reservation_id' = p_id::text
    where coalesce(s.id, r.id) is not null or q.msg_id is not null or d.msg_id is not null
    limit 1
$$;

comment on function public.intake_story(uuid, boolean) is
    'Everything known about one reservation; the payload only if asked for.';
revoke all on function public.intake_story(uuid, boolean) from public;
grant execute on function public.intake_story(uuid, boolean) to penstock_operator, penstock_auditor;
