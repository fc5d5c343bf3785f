create or replace function penstock_payments.guard_registry() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using errcode = 'PN504',
        message = format('payment %s cannot be changed', old.outbox_id);
end
$$;

comment on function penstock_payments.guard_registry() is
    'Trigger: what a payment is does not change; only how it ended does.';
revoke all on function penstock_payments.guard_registry() from public;
