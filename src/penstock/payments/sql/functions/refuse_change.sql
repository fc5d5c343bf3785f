-- The seed names the SQLSTATE.
create or replace function penstock_payments.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using errcode = 'P0001', detail = 'PN106',
        message = format('%s on %s.%s is refused: payments are kept for ever', lower(tg_op),
                         tg_table_schema, tg_table_name),
        hint    = 'write a new row; corrections are new facts';
end
$$;

comment on function penstock_payments.refuse_change() is
    'Trigger: rows are never removed, nor changed where they are history.';
revoke all on function penstock_payments.refuse_change() from public;
