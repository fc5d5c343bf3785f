create schema if not exists app;
comment on schema app is 'Functions of the outbox: publish, claim, finish and what operators need.';

select penstock.create_position('outbox');
