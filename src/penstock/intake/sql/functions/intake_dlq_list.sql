-- A plain SELECT: reading with pgmq would hide the messages and count as a read. Shows no payload.
create or replace function public.intake_dlq_list(
    p_pool_id text default null, p_after bigint default 0, p_limit int default 100
) returns table (
    msg_id bigint, id uuid, pool_id text, resource_id uuid, original_msg_id bigint,
    final_read_ct int, replay_count int, error_code text, error text, enqueued_at timestamptz,
    routed_to_dlq_at timestamptz, commit_started boolean
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select d.msg_id, penstock_intake.dead_id(d.msg_id, d.message), d.message ->> 'pool_id',
        penstock_intake.as_uuid(d.message ->> 'resource_id'),
        (d.message ->> 'original_msg_id')::bigint, (d.message ->> 'final_read_ct')::int,
        coalesce((d.message ->> 'replay_count')::int, 0), d.headers ->> 'error_code',
        d.headers ->> 'error', d.enqueued_at, (d.message ->> 'routed_to_dlq_at')::timestamptz,
        exists (select from public.inventory_slots s
                where s.id = penstock_intake.as_uuid(d.message ->> 'resource_id')
                  and s.commit_started_at is not null)
    from pgmq.q_intake_dlq d
    where d.msg_id > coalesce(p_after, 0)
      and (p_pool_id is null or d.message ->> 'pool_id' = p_pool_id)
    order by d.msg_id
    limit least(greatest(coalesce(p_limit, 100), 1), 1000)
$$;

comment on function public.intake_dlq_list(text, bigint, int) is
    'Dead letters of one pool or all, by number from p_after on; metadata only.';
revoke all on function public.intake_dlq_list(text, bigint, int) from public;
grant execute on function public.intake_dlq_list(text, bigint, int)
    to penstock_operator, penstock_readonly, penstock_auditor;
