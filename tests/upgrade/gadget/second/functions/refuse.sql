create or replace function gadget.refuse() returns trigger language plpgsql as $body$
begin
    return new;
end
$body$;
comment on function gadget.refuse() is 'Lets everything pass.';
revoke all on function gadget.refuse() from public;
