create schema if not exists penstock_ledger;
comment on schema penstock_ledger is 'Internals of the ledger; what it offers is in public.';
