-- Late commits lie in (floor, watermark]: they took their position early and appeared after the
-- watermark had passed. Returns that range when a sweep is due and nobody else is at it, else
-- nothing.
--
-- It also carries the mark on, below which nothing new can appear once it has settled. One sweep
-- notes the watermark. A later one, in a transaction of its own, notes its transaction id: whoever
-- took a position below the mark has a smaller id by then. (Not a snapshot's upper end: that is the
-- id after the last that ended, which an open transaction may have. And two sweeps later, because
-- nextval runs a moment before its transaction gets an id.) When all smaller ids have ended, the
-- mark has settled.
create or replace function penstock.begin_sweep(p_name text)
returns table (lo bigint, hi bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
    v_xid bigint;
begin
    select * into v_position from penstock.position where name = p_name;
    -- An older snapshot would not show what has committed since. Distances are absolute: a clock
    -- that was set back must not stop the sweeps until it has caught up.
    if current_setting('transaction_isolation') <> 'read committed'
       or abs(v_now_ms - pg_sequence_last_value(v_position.swept_ms)) < v_position.sweep_ms
       or not pg_try_advisory_xact_lock(hashtextextended('penstock.sweep/' || p_name, 0)) then
        return;
    end if;
    perform setval(v_position.swept_ms, v_now_ms);
    v_xid := pg_sequence_last_value(v_position.mark_xid);
    if v_xid = 0 then
        if abs(v_now_ms - pg_sequence_last_value(v_position.mark_at_ms))
           >= 2 * v_position.sweep_ms then
            perform setval(v_position.mark_xid, pg_current_xact_id()::text::bigint);
        end if;
    elsif pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= v_xid then
        perform setval(v_position.settled, pg_sequence_last_value(v_position.mark_pos));
        -- Sequences are not undone: whoever is stopped between these leaves the old mark without an
        -- id, which only costs time. A new mark beside the old id would settle too early.
        perform setval(v_position.mark_xid, 0);
        perform setval(v_position.mark_at_ms, v_now_ms);
        perform setval(v_position.mark_pos, pg_sequence_last_value(v_position.watermark));
    end if;
    return query select pg_sequence_last_value(v_position.floor),
                        pg_sequence_last_value(v_position.watermark);
end
$$;

comment on function penstock.begin_sweep(text) is
    'The range of positions to look through for late commits, if a sweep is due now.';
revoke all on function penstock.begin_sweep(text) from public;
