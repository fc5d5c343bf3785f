-- A clock that a test can stop and move. Every lease, delay and timestamp of ours follows it.
create table if not exists penstock.test_clock (
    one       boolean  primary key default true check (one),
    frozen_at timestamptz,
    shift     interval not null default '0'
);
grant select on penstock.test_clock to public;
insert into penstock.test_clock default values on conflict do nothing;

create or replace function penstock.clock() returns timestamptz
language sql volatile parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce((select coalesce(c.frozen_at, clock_timestamp()) + c.shift
                     from penstock.test_clock c), clock_timestamp())
$$;
