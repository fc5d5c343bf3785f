-- The seed's names stand in `public`; what only our own functions touch stands apart.
create schema if not exists penstock_intake;
comment on schema penstock_intake is 'Internals of the intake engine: marks, retired slots, verbs.';

select penstock.create_position('intake');
