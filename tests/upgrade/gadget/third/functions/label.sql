create or replace function gadget.label() returns text language sql as $$ select 'part'::text $$;
comment on function gadget.label() is 'The name of a part; has a semicolon; and -- no comment';
revoke all on function gadget.label() from public;
grant execute on function gadget.label() to penstock_operator, authenticated;
