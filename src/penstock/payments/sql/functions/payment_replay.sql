-- All or nothing: one payment that must be reconciled first stops the whole call.
create or replace function public.payment_replay(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id uuid;
begin
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 payments in one call';
    end if;
    for v_id in
        select d.outbox_id from penstock_payments.dead_letters d
        where d.outbox_id = any (p_ids)
        order by d.outbox_id
        for update skip locked
    loop
        id := v_id;
        audit_id := public.replay_payment(v_id, p_operator, p_reason);
        return next;
    end loop;
end
$$;

comment on function public.payment_replay(uuid[], text, text) is
    'Replay those of the payments that have failed; one audit row each.';
revoke all on function public.payment_replay(uuid[], text, text) from public;
grant execute on function public.payment_replay(uuid[], text, text) to penstock_operator;
