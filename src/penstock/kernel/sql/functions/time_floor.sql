-- Indexes over due times and lease ends keep the entries of finished rows while a snapshot is held
-- open; starting each probe at a floor makes every such entry cost once instead of every time.
create or replace function penstock.time_floor(p_sequence regclass) returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select to_timestamp(pg_sequence_last_value(p_sequence) / 1000.0) $$;

comment on function penstock.time_floor(regclass) is 'Below this time nothing is expected to wait.';
revoke all on function penstock.time_floor(regclass) from public;
