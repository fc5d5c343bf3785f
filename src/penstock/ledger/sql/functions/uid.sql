create or replace function penstock_ledger.uid() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub' $$;

comment on function penstock_ledger.uid() is
    'The user of the verified token of this request, or NULL.';
revoke all on function penstock_ledger.uid() from public;
grant execute on function penstock_ledger.uid() to public;
