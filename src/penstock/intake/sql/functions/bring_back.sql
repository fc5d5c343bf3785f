-- Messages that were read before and are ready again (lease over, retry due). Those above the
-- watermark are found by the claim itself. The time floor keeps finished leases from being walked
-- over again and again while an old snapshot keeps their index entries.
create or replace function penstock_intake.bring_back(p_net boolean, p_mark bigint) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_floor timestamptz := case when p_net then '-infinity'
                                else penstock.time_floor('penstock.intake_due') end;
    v_lowest timestamptz;
    v_count int;
begin
    insert into penstock_intake.returned (msg_id)
    select q.msg_id from pgmq.q_intake_queue q
    where q.read_ct > 0 and q.vt > v_floor and q.vt <= v_now and q.msg_id <= p_mark
      and not exists (select from penstock_intake.returned r where r.msg_id = q.msg_id)
    order by q.vt limit 5000
    on conflict do nothing;
    get diagnostics v_count = row_count;
    select q.vt into v_lowest from pgmq.q_intake_queue q
    where q.read_ct > 0 and q.vt > v_floor order by q.vt limit 1;
    perform penstock.raise_time_floor('penstock.intake_due', coalesce(v_lowest, 'infinity'),
                                      interval '1 minute');
    return v_count;
end
$$;

comment on function penstock_intake.bring_back(boolean, bigint) is
    'List messages below the watermark whose lease ended or whose retry is due.';
revoke all on function penstock_intake.bring_back(boolean, bigint) from public;
