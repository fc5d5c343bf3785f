-- W may rise to just below the lowest ready position that a plain snapshot sees above it: a row
-- under claim is still ready to that snapshot, so a claim that aborts is never passed. Two keepers
-- racing can only move W back a little, which costs time and loses nothing.
create or replace function penstock.raise_watermark(p_name text, p_lowest bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position record;
    v_target bigint;
begin
    select watermark, next_pos into v_position from penstock.position where name = p_name;
    -- With nothing ready, every position handed out so far is claimed, aborted or not yet
    -- committed; the sweep brings the last kind back.
    v_target := coalesce(p_lowest - 1, pg_sequence_last_value(v_position.next_pos));
    -- An older snapshot does not show what was committed since. Only those may pass it who also sweep.
    if v_target > pg_sequence_last_value(v_position.watermark)
       and current_setting('transaction_isolation') = 'read committed' then
        perform setval(v_position.watermark, v_target);
    end if;
end
$$;

comment on function penstock.raise_watermark(text, bigint) is
    'Move the watermark up to just below the lowest ready position seen; never down.';
revoke all on function penstock.raise_watermark(text, bigint) from public;
