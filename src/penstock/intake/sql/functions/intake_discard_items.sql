create or replace function public.intake_discard_items(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select d.id, r.audit_id
    from (select x.msg_id, penstock_intake.dead_id(x.msg_id, x.message) as id
          from pgmq.q_intake_dlq x) d
    cross join lateral public.intake_discard(array[d.msg_id], p_reason, p_operator) r
    where d.id = any (p_ids) and r.audit_id is not null
$$;

comment on function public.intake_discard_items(uuid[], text, text) is
    'intake_discard by reservation id: the form that all queues share.';
revoke all on function public.intake_discard_items(uuid[], text, text) from public;
grant execute on function public.intake_discard_items(uuid[], text, text) to penstock_operator;
