-- A rail whose keys turn out to be none: what it was shown and did not clearly refuse may have been
-- paid, and must not go out again by itself. What is being sent just now ends by the new policy.
create or replace function penstock_payments.hold_shown(p_rail_type text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ends penstock_payments.ending[];
begin
    v_ends := array(
        select row(i.outbox_id, 'HELD', null, null, null, 'KEY_WINDOW_OVER',
                   'the rail was found to recognise no keys', null)::penstock_payments.ending
        from public.payment_outbox_inflight i
        where i.rail_type = p_rail_type and i.phase = 'claimed' and i.held_at is null
          and i.first_sent_at is not null
        order by i.outbox_id for update);
    perform penstock_payments.write_ends(v_ends);
    perform penstock_payments.alert_ends(v_ends);
    update public.payment_outbox_pending p set next_attempt_at = 'infinity'
    where p.rail_type = p_rail_type and p.first_sent_at is not null
      and p.next_attempt_at < 'infinity';
end
$$;

comment on function penstock_payments.hold_shown(text) is
    'Hold the open payments of a rail that it was shown before.';
revoke all on function penstock_payments.hold_shown(text) from public;
