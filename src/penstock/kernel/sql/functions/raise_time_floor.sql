-- The floor stays p_lag behind the clock: a transaction that computed its time and commits within
-- the lag is still seen. Slower ones are found by the sweep from zero (net). A floor above the clock is
-- of a clock that was set back: it comes down with the clock, or it would hide what falls due below it
-- once the clock has passed it again.
-- It rises by a second at least, so that an idle queue does not write at every look.
create or replace function penstock.raise_time_floor(
    p_sequence regclass, p_lowest timestamptz, p_lag interval
) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select setval(p_sequence, target.ms)
    from (select penstock.milliseconds(
              least(p_lowest - interval '1 millisecond', penstock.clock() - p_lag)) as ms) target
    where current_setting('transaction_isolation') = 'read committed'  -- see raise_watermark
      and (target.ms >= pg_sequence_last_value(p_sequence) + 1000
           or pg_sequence_last_value(p_sequence) > penstock.milliseconds(penstock.clock()))
$$;

comment on function penstock.raise_time_floor(regclass, timestamptz, interval) is
    'Move a time floor up to just below the lowest time still waiting; down only with the clock.';
revoke all on function penstock.raise_time_floor(regclass, timestamptz, interval) from public;
