-- For statements that need hundreds of ids: the time part once, then per row three digits, an '8'
-- and fifteen digits. Asking the system for random bytes costs more than all the rest of an id, so
-- the statement asks once and spreads that seed over its rows by a hash.
create or replace function penstock_intake.uuidv7_head() returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7'
    from lpad(to_hex(penstock.milliseconds(clock_timestamp())), 12, '0') as h
$$;

comment on function penstock_intake.uuidv7_head() is 'The first 15 characters of a UUID of now.';
revoke all on function penstock_intake.uuidv7_head() from public;
