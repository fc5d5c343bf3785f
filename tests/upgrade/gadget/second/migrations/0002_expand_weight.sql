-- Parts get a weight. Lock: short, on gadget.part. In a transaction.
alter table gadget.part add column weight integer not null default 0 check (weight >= 0);
