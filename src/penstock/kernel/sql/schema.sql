-- `penstock` holds what every product shares; `audit` is the append-only log of operator actions.
create schema if not exists penstock;
create schema if not exists audit;

comment on schema penstock is 'Penstock kernel: queues, leases, positions, schedule, pauses.';
comment on schema audit is 'Append-only record of every operator action.';
