-- Indexes over due times and lease ends keep the entries of finished rows while a snapshot is held
-- open; starting each probe at a floor makes every such entry cost once instead of every time.
create or replace function penstock.time_floor(p_sequence regclass) returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    -- A floor above the clock means that the clock was set back: then look from the beginning.
    select case when floor.at <= penstock.clock() then floor.at else '-infinity' end
    from (select to_timestamp(pg_sequence_last_value(p_sequence) / 1000.0) as at) floor
$$;

comment on function penstock.time_floor(regclass) is 'Below this time nothing is expected to wait.';
revoke all on function penstock.time_floor(regclass) from public;
