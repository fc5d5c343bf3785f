-- read_ct goes down again, so it alone no longer tells two leases apart; the lease's end does.
create or replace function public.intake_give_back(
    p_msg_ids bigint[], p_read_cts int[], p_vts timestamptz[]
) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    with given as (
        update pgmq.q_intake_queue q
        set vt = penstock.clock(), read_ct = q.read_ct - 1
        from (select * from unnest(p_msg_ids, p_read_cts, p_vts) as a (msg_id, read_ct, vt)
              order by a.msg_id) a
        where q.msg_id = a.msg_id and q.read_ct = a.read_ct and q.vt = a.vt and q.read_ct > 0
        returning q.msg_id
    ), listed as (
        insert into penstock_intake.returned (msg_id)
        select g.msg_id from given g order by g.msg_id on conflict do nothing
    )
    select g.msg_id from given g
$$;

comment on function public.intake_give_back(bigint[], int[], timestamptz[]) is
    'Return messages that were not started; the attempt does not count.';
revoke all on function public.intake_give_back(bigint[], int[], timestamptz[]) from public;
grant execute on function public.intake_give_back(bigint[], int[], timestamptz[])
    to penstock_intake_executor;
