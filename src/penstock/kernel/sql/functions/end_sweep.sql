-- Raise the floor only after sweeping, only to a mark set before everything that could still be
-- uncommitted below it has ended, and never past a row that the sweep had to leave (it was locked:
-- its claim may yet abort). Marks are also two sweeps old, because nextval runs a moment before
-- its transaction has an id.
create or replace function penstock.end_sweep(p_name text, p_lowest_left bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_mark bigint;
    v_floor bigint;
    v_now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
    v_xmin bigint := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
begin
    select * into v_position from penstock.position where name = p_name;
    v_mark := pg_sequence_last_value(v_position.mark_pos);
    v_floor := pg_sequence_last_value(v_position.floor);
    if v_xmin < pg_sequence_last_value(v_position.mark_xid)
       or v_now_ms - pg_sequence_last_value(v_position.mark_at_ms) < 2 * v_position.sweep_ms then
        return;
    end if;
    v_mark := least(v_mark, coalesce(p_lowest_left - 1, v_mark));
    if v_mark > v_floor then
        perform setval(v_position.floor, v_mark);
    end if;
    perform setval(v_position.mark_pos, pg_sequence_last_value(v_position.watermark)),
            setval(v_position.mark_xid, pg_snapshot_xmax(pg_current_snapshot())::text::bigint),
            setval(v_position.mark_at_ms, v_now_ms);
end
$$;

comment on function penstock.end_sweep(text, bigint) is
    'Close a sweep: raise the floor to the settled mark and set the next mark.';
revoke all on function penstock.end_sweep(text, bigint) from public;
