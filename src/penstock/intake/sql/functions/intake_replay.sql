create or replace function public.intake_replay(
    p_msg_ids bigint[], p_reason text, p_operator text default null
) returns table (msg_id bigint, outcome text, new_msg_id bigint, audit_id uuid)
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
    for msg_id in select distinct i from unnest(p_msg_ids) i order by i loop
        select r.outcome, r.new_msg_id, r.message into outcome, new_msg_id, v_message
        from penstock_intake.replay_one(msg_id) r;
        audit_id := case when outcome in ('replayed', 'sold') then audit.record(
            'replay', 'pgmq.q_intake_dlq', jsonb_build_object('msg_id', msg_id,
                'id', v_message ->> 'reservation_id', 'resource_id', v_message ->> 'resource_id',
                'outcome', outcome, 'new_msg_id', new_msg_id), p_reason, p_operator) end;
        return next;
    end loop;
end
$$;

comment on function public.intake_replay(bigint[], text, text) is
    'Put dead letters back on intake_queue with a new cycle of attempts, where their slot is still '
    'theirs; one audit row each. Outcome: replayed, sold, not_replayable or gone.';
revoke all on function public.intake_replay(bigint[], text, text) from public;
grant execute on function public.intake_replay(bigint[], text, text) to penstock_operator;
