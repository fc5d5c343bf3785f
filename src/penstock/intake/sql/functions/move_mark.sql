-- A claim walks over whatever has been sold since the watermark moved, and while a snapshot is held
-- nothing else makes that way shorter. So whoever finds it long moves the mark. It comes before the
-- claim writes, in a transaction that has not written: what may be undone is still free by then.
create or replace function penstock_intake.move_mark(
    p_pool_id text, p_watermark regclass, p_mark bigint, p_first tid
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    c_stride constant bigint := 256;
begin
    if (select s.ord from public.inventory_slots s where s.ctid = p_first) > p_mark + c_stride then
        perform penstock_intake.raise_mark(p_pool_id, p_watermark, p_mark);
    end if;
end
$$;

comment on function penstock_intake.move_mark(text, regclass, bigint, tid) is
    'Move the watermark of a pool up if a claim had a long way to its first slot.';
revoke all on function penstock_intake.move_mark(text, regclass, bigint, tid) from public;
