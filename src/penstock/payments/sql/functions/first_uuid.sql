create or replace function penstock_payments.first_uuid(p_day date) returns uuid
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select (lpad(to_hex(extract(epoch from p_day::timestamp at time zone 'UTC')::bigint * 1000),
                 12, '0') || repeat('0', 20))::uuid
$$;

comment on function penstock_payments.first_uuid(date) is
    'The lowest UUIDv7 of a day (UTC): the bound of a partition.';
revoke all on function penstock_payments.first_uuid(date) from public;
