create or replace function penstock.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'PN106',
        message = format('%s.%s is append-only', tg_table_schema, tg_table_name),
        hint    = 'write a new row; corrections are new facts';
end
$$;

comment on function penstock.refuse_change() is 'Trigger: rows are never changed or removed.';
revoke all on function penstock.refuse_change() from public;
