grant usage on schema gadget to penstock_operator, penstock_readonly;
grant select on gadget.names to penstock_operator, penstock_readonly;
