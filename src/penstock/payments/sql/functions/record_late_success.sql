-- The rail paid, but the worker had lost its lease by then. Wherever the payment stands now, it must
-- end as DISPATCHED and must not be sent again. Lock order: in flight, pending, registry; an item
-- that moves between the looks is looked for again.
create or replace function public.record_late_success(
    p_outbox_id uuid, p_token uuid, p_rail_reference text default null,
    p_rail_code text default null, p_latency_ms integer default null
) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_flight public.payment_outbox_inflight;
    v_terminal text;
begin
    if not exists (
        select from public.payment_outbox_attempts a
        where a.outbox_id = p_outbox_id and a.lease_token = p_token and a.state = 'DISPATCHING'
    ) then
        raise exception using errcode = 'PN201',
            message = format('this token never held payment %s', p_outbox_id);
    end if;
    if not exists (select from penstock.late_results l
                   where l.item_id = p_outbox_id and l.lease_token = p_token
                     and l.verdict = 'DISPATCHED') then
        perform penstock.late_result('payments', p_outbox_id, p_token, null, 'DISPATCHED',
                                     p_rail_code);
    end if;
    for i in 1..10 loop
        select * into v_flight from public.payment_outbox_inflight f
        where f.outbox_id = p_outbox_id for update;
        if found and v_flight.phase = 'sent' and v_flight.held_at is null then
            -- Its call returns the first result by the same key; if not, this reference is kept.
            update public.payment_outbox_inflight f
            set late_at = penstock.clock(), late_reference = p_rail_reference,
                late_code = p_rail_code
            where f.outbox_id = p_outbox_id;
            return 'FLAGGED';
        elsif found then
            perform penstock_payments.write_ends(array[row(p_outbox_id, 'DISPATCHED', null,
                p_rail_reference, p_rail_code, 'LATE_RESULT', null, p_latency_ms
                )::penstock_payments.ending]);
            return 'RECORDED';
        end if;
        delete from public.payment_outbox_pending p where p.outbox_id = p_outbox_id;
        if found then
            perform penstock_payments.write_late_pair(p_outbox_id, p_rail_reference, p_rail_code,
                                                      'LATE_RESULT', p_token);
            return 'RECORDED';
        end if;
        select r.terminal_state into v_terminal from public.payment_outbox_registry r
        where r.outbox_id = p_outbox_id for update;
        if v_terminal = 'DISPATCHED' then
            return 'KNOWN';
        elsif v_terminal is not null then
            perform penstock_payments.write_late_pair(p_outbox_id, p_rail_reference, p_rail_code,
                                                      'LATE_RESULT', p_token);
            return 'RECORDED';
        end if;
    end loop;
    raise exception using errcode = '40001',
        message = format('payment %s keeps moving', p_outbox_id);
end
$$;

comment on function public.record_late_success(uuid, uuid, text, text, integer) is
    'Record that a dispatch succeeded after its lease was lost; returns where it was recorded.';
revoke all on function public.record_late_success(uuid, uuid, text, text, integer) from public;
grant execute on function public.record_late_success(uuid, uuid, text, text, integer)
    to penstock_payments_executor;
