-- The floor rises to the settled mark, and never past a row that is still there: it may be locked by
-- a claim that aborts. The caller looks for that row after begin_sweep and before it changes any,
-- because a sequence keeps its value when the transaction is undone.
create or replace function penstock.end_sweep(p_name text, p_lowest_left bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_target bigint;
begin
    select * into v_position from penstock.position where name = p_name;
    v_target := pg_sequence_last_value(v_position.settled);
    v_target := least(v_target, coalesce(p_lowest_left - 1, v_target));
    if v_target > pg_sequence_last_value(v_position.floor) then
        perform setval(v_position.floor, v_target);
    end if;
end
$$;

comment on function penstock.end_sweep(text, bigint) is
    'Raise the floor to the settled mark, or to just below the lowest row that is still there.';
revoke all on function penstock.end_sweep(text, bigint) from public;
