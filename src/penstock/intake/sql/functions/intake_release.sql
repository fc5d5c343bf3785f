-- For a reservation that validation refused, or that the ledger cancelled. Its message goes in the
-- same transaction, from whichever queue holds it.
create or replace function public.intake_release(
    p_resource_ids uuid[], p_reservation_ids uuid[], p_reason text,
    p_cancelled uuid[] default '{}', p_msg_ids bigint[] default null
) returns table (resource_id uuid, outcome text, offered_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_asked record;
    v_done text[] := '{}';
begin
    if coalesce(trim(p_reason), '') = '' then
        raise exception using errcode = 'PN205', message = 'a release needs a reason';
    end if;
    for v_asked in
        select a.id, a.reservation_id
        from unnest(p_resource_ids, p_reservation_ids) as a (id, reservation_id)
        left join public.inventory_slots s on s.id = a.id
        order by s.pool_id, a.id
    loop
        resource_id := v_asked.id;
        select f.outcome, f.offered_id into outcome, offered_id
        from penstock_intake.free_slot(v_asked.id, v_asked.reservation_id,
            v_asked.reservation_id = any (p_cancelled), p_reason) f;
        if outcome in ('released', 'retired') then
            v_done := v_done || v_asked.reservation_id::text;
        end if;
        return next;
    end loop;
    if cardinality(v_done) > 0 then
        delete from pgmq.q_intake_queue q
        where (p_msg_ids is null or q.msg_id = any (p_msg_ids))
          and q.message ->> 'reservation_id' = any (v_done);
        delete from pgmq.q_intake_dlq d where d.message ->> 'reservation_id' = any (v_done);
    end if;
end
$$;

comment on function public.intake_release(uuid[], uuid[], text, uuid[], bigint[]) is
    'End reservations unconfirmed and put their slots on offer again; p_cancelled names those that '
    'the ledger has cancelled. Outcome: released, retired, started, sold or gone.';
revoke all on function public.intake_release(uuid[], uuid[], text, uuid[], bigint[]) from public;
grant execute on function public.intake_release(uuid[], uuid[], text, uuid[], bigint[])
    to penstock_intake_executor;
