-- penstock: no transaction
-- Finding parts by name. Lock: none that stops writers.
create index concurrently part_name on gadget.part (name);
