-- Late commits lie in (floor, watermark]: they took their position early and appeared after the
-- watermark had passed. Returns that range when a sweep is due and nobody else is at it, else
-- nothing. It also settles the mark: once every transaction that was open when the mark was set has
-- ended, nothing new can appear below it. Marks are two sweeps old as well, because nextval runs a
-- moment before its transaction has an id.
create or replace function penstock.begin_sweep(p_name text)
returns table (lo bigint, hi bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
    v_watermark bigint;
    v_snapshot pg_snapshot;
begin
    select * into v_position from penstock.position where name = p_name;
    -- An older snapshot would show too few open transactions. Distances are absolute: a clock that
    -- was set back must not stop the sweeps until it has caught up.
    if current_setting('transaction_isolation') <> 'read committed'
       or abs(v_now_ms - pg_sequence_last_value(v_position.swept_ms)) < v_position.sweep_ms
       or not pg_try_advisory_xact_lock(hashtextextended('penstock.sweep/' || p_name, 0)) then
        return;
    end if;
    perform setval(v_position.swept_ms, v_now_ms);
    v_watermark := pg_sequence_last_value(v_position.watermark);
    -- After the watermark was read: a position below it cannot belong to a younger transaction.
    v_snapshot := pg_current_snapshot();
    if pg_snapshot_xmin(v_snapshot)::text::bigint >= pg_sequence_last_value(v_position.mark_xid)
       and abs(v_now_ms - pg_sequence_last_value(v_position.mark_at_ms))
           >= 2 * v_position.sweep_ms then
        perform setval(v_position.settled, pg_sequence_last_value(v_position.mark_pos));
        perform setval(v_position.mark_pos, v_watermark),
                setval(v_position.mark_xid, pg_snapshot_xmax(v_snapshot)::text::bigint),
                setval(v_position.mark_at_ms, v_now_ms);
    end if;
    return query select pg_sequence_last_value(v_position.floor), v_watermark;
end
$$;

comment on function penstock.begin_sweep(text) is
    'The range of positions to look through for late commits, if a sweep is due now.';
revoke all on function penstock.begin_sweep(text) from public;
