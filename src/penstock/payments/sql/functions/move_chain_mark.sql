-- Called when everything visible above the floor is linked. An id is made a moment before its row's
-- transaction has a number, hence the minute of distance. The number is our own, not the upper end of
-- a snapshot: that is the one after the last that ended, which an open transaction may have.
create or replace function penstock_payments.move_chain_mark() returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    update penstock_payments.chain_mark m
    set floor_id = case when m.mark_xid <= pg_snapshot_xmin(pg_current_snapshot())
                        then m.mark_id else m.floor_id end,
        mark_id = case when m.mark_xid > pg_snapshot_xmin(pg_current_snapshot())
                       then m.mark_id
                       else (lpad(to_hex(penstock.milliseconds(clock_timestamp()) - 60000), 12, '0')
                             || repeat('0', 20))::uuid end,
        mark_xid = case when m.mark_xid > pg_snapshot_xmin(pg_current_snapshot())
                        then m.mark_xid else pg_current_xact_id() end
$$;

comment on function penstock_payments.move_chain_mark() is
    'Raise the floor to the last mark once all transactions of before it have ended.';
revoke all on function penstock_payments.move_chain_mark() from public;
