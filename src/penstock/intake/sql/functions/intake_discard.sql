create or replace function public.intake_discard(
    p_msg_ids bigint[], p_reason text, p_operator text default null,
    p_cancelled uuid[] default '{}'
) returns table (msg_id bigint, outcome text, offered_id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_message jsonb;
begin
    if cardinality(p_msg_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 messages in one call';
    end if;
    for msg_id in
        select i.msg_id from (select distinct unnest(p_msg_ids) as msg_id) i
        left join pgmq.q_intake_dlq d on d.msg_id = i.msg_id
        order by d.message ->> 'pool_id' collate "C", i.msg_id
    loop
        select r.outcome, r.offered_id, r.message into outcome, offered_id, v_message
        from penstock_intake.discard_one(msg_id, p_cancelled, p_reason) r;
        audit_id := case when v_message is not null then audit.record(
            'discard', 'pgmq.q_intake_dlq', jsonb_build_object('msg_id', msg_id,
                'id', v_message ->> 'reservation_id', 'outcome', outcome,
                'offered_id', offered_id, 'message', v_message), p_reason, p_operator) end;
        return next;
    end loop;
end
$$;

comment on function public.intake_discard(bigint[], text, text, uuid[]) is
    'Give up dead letters for good and free their slots; one audit row each. One whose commit was '
    'started answers "started" until p_cancelled names its reservation as cancelled in the ledger.';
revoke all on function public.intake_discard(bigint[], text, text, uuid[]) from public;
grant execute on function public.intake_discard(bigint[], text, text, uuid[])
    to penstock_operator;
