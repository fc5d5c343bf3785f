-- Late commits lie in (floor, watermark]: they took their position early and appeared after the
-- watermark had passed. Returns that range when a sweep is due and nobody else is at it, else
-- nothing.
create or replace function penstock.begin_sweep(p_name text)
returns table (lo bigint, hi bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_position penstock.position;
    v_now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    select * into v_position from penstock.position where name = p_name;
    if v_now_ms - pg_sequence_last_value(v_position.swept_ms) < v_position.sweep_ms
       or not pg_try_advisory_xact_lock(hashtextextended('penstock.sweep/' || p_name, 0)) then
        return;
    end if;
    perform setval(v_position.swept_ms, v_now_ms);
    return query select pg_sequence_last_value(v_position.floor),
                        pg_sequence_last_value(v_position.watermark);
end
$$;

comment on function penstock.begin_sweep(text) is
    'The range of positions to look through for late commits, if a sweep is due now.';
revoke all on function penstock.begin_sweep(text) from public;
