create or replace function public.intake_extend(
    p_msg_ids bigint[], p_read_cts int[], p_lease_s int
) returns table (msg_id bigint, vt timestamptz)
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update pgmq.q_intake_queue q
    set vt = greatest(q.vt, penstock.clock()
             + make_interval(secs => least(greatest(coalesce(p_lease_s, 45), 1), 3600)))
    from (select * from unnest(p_msg_ids, p_read_cts) as a (msg_id, read_ct) order by a.msg_id) a
    where q.msg_id = a.msg_id and q.read_ct = a.read_ct
    returning q.msg_id, q.vt
$$;

comment on function public.intake_extend(bigint[], int[], int) is
    'Prolong leases; returns those still held (read_ct unchanged) with their new end.';
revoke all on function public.intake_extend(bigint[], int[], int) from public;
grant execute on function public.intake_extend(bigint[], int[], int) to penstock_intake_executor;
