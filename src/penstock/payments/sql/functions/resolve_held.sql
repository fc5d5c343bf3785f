-- The first thing a person says about a held payment becomes the outcome of its last dispatch.
create or replace function penstock_payments.resolve_held(
    p_outbox_id uuid, p_resolution text, p_rail_reference text, p_rail_code text, p_reason text
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from public.payment_outbox_inflight i
    where i.outbox_id = p_outbox_id and i.held_at is not null for update;
    if found then
        perform penstock_payments.write_ends(array[row(p_outbox_id,
            case p_resolution when 'dispatched' then 'DISPATCHED' when 'failed' then 'FAILED'
                              else 'RESOLVED' end,
            0, p_rail_reference, p_rail_code, 'RESOLVED', left(p_reason, 2000), null
            )::penstock_payments.ending]);
        return true;
    end if;
    if p_resolution <> 'not_paid' then
        return penstock_payments.end_waiting(p_outbox_id,
            case p_resolution when 'dispatched' then 'DISPATCHED' else 'FAILED' end,
            p_rail_reference, p_reason);
    end if;
    update public.payment_outbox_pending p set next_attempt_at = penstock.clock()
    where p.outbox_id = p_outbox_id and p.next_attempt_at = 'infinity';
    return found;
end
$$;

comment on function penstock_payments.resolve_held(uuid, text, text, text, text) is
    'End the hold of a payment; false if it is not held.';
revoke all on function penstock_payments.resolve_held(uuid, text, text, text, text) from public;
