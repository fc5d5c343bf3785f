create or replace function penstock_payments.alert_ends(p_ends penstock_payments.ending[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from unnest(p_ends) e where e.state in ('FAILED', 'HELD')) then
        return;
    end if;
    perform penstock.alert('payments', array_agg(e.outbox_id), array_agg(r.rail_type),
        array_agg(case e.state when 'HELD' then 'HELD' else 'DEAD' end), array_agg(e.error_code),
        array_agg(e.error_message))
    from unnest(p_ends) e
    join public.payment_outbox_registry r on r.outbox_id = any (array[e.outbox_id])
    where e.state in ('FAILED', 'HELD');
end
$$;

comment on function penstock_payments.alert_ends(penstock_payments.ending[]) is
    'Alert about payments that have just failed or are held.';
revoke all on function penstock_payments.alert_ends(penstock_payments.ending[]) from public;
