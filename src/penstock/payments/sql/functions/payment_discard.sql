-- Giving up is final: the payment counts as failed and leaves the list. What was held may have been
-- paid, so saying that it was not takes as many eyes as resolving it; a late success still finds its
-- record.
create or replace function public.payment_discard(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_held uuid[];
begin
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 payments in one call';
    end if;
    v_held := array(
        select i.outbox_id from public.payment_outbox_inflight i
        where i.outbox_id = any (p_ids) and i.held_at is not null
        order by i.outbox_id for update skip locked);
    perform penstock_payments.write_ends(array(
        select row(h.id, 'FAILED', 0, null, null, 'DISCARDED', p_reason, null
               )::penstock_payments.ending
        from unnest(v_held) as h (id)));
    for id in
        delete from penstock_payments.dead_letters d
        where d.outbox_id = any (array(
            select l.outbox_id from penstock_payments.dead_letters l
            where l.outbox_id = any (p_ids)
            order by l.outbox_id for update skip locked))
        returning d.outbox_id
    loop
        update public.payment_outbox_registry r set discarded_at = penstock.clock()
        where r.outbox_id = id;
        audit_id := audit.record('discard', 'public.payment_outbox_registry',
            jsonb_build_object(
                'id', id, 'was_held', id = any (v_held), 'approved_by',
                case when id = any (v_held) then penstock_payments.use_approval(id) end),
            p_reason, p_operator);
        return next;
    end loop;
end
$$;

comment on function public.payment_discard(uuid[], text, text) is
    'Give up failed or held payments for good; one audit row each.';
revoke all on function public.payment_discard(uuid[], text, text) from public;
grant execute on function public.payment_discard(uuid[], text, text) to penstock_operator;
