-- The net under the watermarks: every ten minutes (and at first use) one look from zero.
create or replace function penstock.net_due(p_name text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_net regclass;
    v_now_ms bigint := penstock.milliseconds(clock_timestamp());
begin
    select net_ms into v_net from penstock.position where name = p_name;
    if abs(v_now_ms - pg_sequence_last_value(v_net)) < 600000 then
        return false;
    end if;
    perform setval(v_net, v_now_ms);
    return true;
end
$$;

comment on function penstock.net_due(text) is
    'True once every ten minutes: the caller then looks from zero instead of the floors.';
revoke all on function penstock.net_due(text) from public;
