create schema if not exists app;
comment on schema app is 'Functions of the outbox: publish, claim, finish and what operators need.';

create schema if not exists payments;
comment on schema payments is 'Relay table for transfers.';
create schema if not exists ledger;
comment on schema ledger is 'Relay table for ledger postings.';
create schema if not exists relay;
comment on schema relay is 'What the relay tables could not deliver.';

select penstock.create_position('outbox');
