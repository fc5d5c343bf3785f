-- The seed's names stand in `public`; what only our own functions touch stands apart.
create schema if not exists penstock_payments;
comment on schema penstock_payments is 'Internals of payments: policy, dead letters, checks, proof.';
