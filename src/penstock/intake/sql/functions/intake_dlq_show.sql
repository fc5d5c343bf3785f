create or replace function public.intake_dlq_show(
    p_msg_ids bigint[], p_reason text, p_operator text default null
) returns table (msg_id bigint, message jsonb, headers jsonb, audit_id uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with shown as (
        select d.msg_id, d.message, d.headers from pgmq.q_intake_dlq d
        where d.msg_id = any (p_msg_ids[1:1000])
    ), noted as materialized (
        select audit.record('show', 'pgmq.q_intake_dlq',
            jsonb_build_object('msg_ids', (select jsonb_agg(s.msg_id) from shown s)),
            p_reason, p_operator) as id
        where exists (select from shown)
    )
    select s.msg_id, s.message, s.headers, n.id from shown s cross join noted n order by s.msg_id
$$;

comment on function public.intake_dlq_show(bigint[], text, text) is
    'Dead letters with their payload; the look itself is audited.';
revoke all on function public.intake_dlq_show(bigint[], text, text) from public;
grant execute on function public.intake_dlq_show(bigint[], text, text) to penstock_operator;
