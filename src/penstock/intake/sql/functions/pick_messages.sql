-- Ready messages above the watermark, and those that returned below it. A returned one leaves the
-- list when it is taken, gone, or leased; one that somebody else has locked stays on it, and so
-- does one that is unread and waits, because nothing else would find it again. Those that wait are
-- passed over by a look at each, so that they do not use up the limit (a subquery with one value:
-- a join might walk the whole queue). JIT is off wherever seqscan is: before version 18 a scan that
-- is only discouraged looks so costly that compiling it takes a second.
create or replace function penstock_intake.pick_messages(p_limit int) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_mark bigint := pg_sequence_last_value('penstock.intake_wm');
    v_listed bigint[];
    v_taken bigint[] := '{}';
begin
    v_listed := array(select r.msg_id from penstock_intake.returned r
                      where coalesce((select q.vt <= v_now or q.read_ct > 0
                                      from pgmq.q_intake_queue q where q.msg_id = r.msg_id), true)
                      order by r.msg_id limit p_limit for update skip locked);
    if cardinality(v_listed) > 0 then
        v_taken := array(
            select q.msg_id from pgmq.q_intake_queue q
            where q.msg_id = any (v_listed) and q.vt <= v_now
            order by q.msg_id for update skip locked);
        delete from penstock_intake.returned r
        where r.msg_id = any (v_listed)
          and (r.msg_id = any (v_taken)
               or not exists (select from pgmq.q_intake_queue q
                              where q.msg_id = r.msg_id
                                and (q.vt <= v_now or q.read_ct = 0)));
    end if;
    return v_taken || array(
        select q.msg_id from pgmq.q_intake_queue q
        where q.msg_id > v_mark and q.vt <= v_now
        order by q.msg_id limit greatest(p_limit - cardinality(v_taken), 0)
        for update skip locked);
end
$$;

comment on function penstock_intake.pick_messages(int) is 'Lock up to p_limit ready messages.';
revoke all on function penstock_intake.pick_messages(int) from public;
