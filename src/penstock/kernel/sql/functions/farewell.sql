create or replace function penstock.farewell(p_id uuid) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ delete from penstock.worker where id = p_id $$;

comment on function penstock.farewell(uuid) is 'A worker has stopped in good order.';
revoke all on function penstock.farewell(uuid) from public;
grant execute on function penstock.farewell(uuid)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor;
