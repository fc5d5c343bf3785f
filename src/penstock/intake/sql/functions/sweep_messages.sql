-- Messages that were never read and lie below the watermark: late commits, and parked ones.
create or replace function penstock_intake.sweep_messages(p_net boolean) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_range record;
    v_count int;
begin
    select s.lo, s.hi into v_range from penstock.begin_sweep('intake') s;
    if not found then
        return 0;
    end if;
    v_range.lo := case when p_net then -1 else v_range.lo end;
    insert into penstock_intake.returned (msg_id)
    select q.msg_id from pgmq.q_intake_queue q
    where q.msg_id > v_range.lo and q.msg_id <= v_range.hi and q.read_ct = 0 and q.vt <= v_now
    order by q.msg_id limit 5000
    on conflict do nothing;
    get diagnostics v_count = row_count;
    perform penstock.end_sweep('intake', (
        select q.msg_id from pgmq.q_intake_queue q
        where q.msg_id > v_range.lo and q.msg_id <= v_range.hi and q.read_ct = 0
        order by q.msg_id limit 1));
    return v_count;
end
$$;

comment on function penstock_intake.sweep_messages(boolean) is
    'List unread messages below the watermark, when a sweep is due.';
revoke all on function penstock_intake.sweep_messages(boolean) from public;
