-- The reason travels in the message's headers, so that a dead letter can tell what it died of.
create or replace function public.intake_retry(
    p_msg_ids bigint[], p_read_cts int[], p_delays_s double precision[],
    p_codes text[] default null, p_errors text[] default null
) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
    update pgmq.q_intake_queue q
    set vt = penstock.clock() + make_interval(secs => least(greatest(a.delay_s, 0), 86400)),
        headers = case when jsonb_typeof(q.headers) = 'object'
                       then q.headers else '{}' end || jsonb_strip_nulls(jsonb_build_object(
            'waiting', true, 'error_code', left(a.code, 100), 'error', left(a.error, 2000)))
    from (select * from unnest(p_msg_ids, p_read_cts, p_delays_s, p_codes, p_errors)
              as a (msg_id, read_ct, delay_s, code, error) order by a.msg_id) a
    where q.msg_id = a.msg_id and q.read_ct = a.read_ct
    returning q.msg_id
$$;

comment on function public.intake_retry(bigint[], int[], double precision[], text[], text[]) is
    'Try again after a delay, where the lease is still held; returns the ids that apply.';
revoke all on function
    public.intake_retry(bigint[], int[], double precision[], text[], text[]) from public;
grant execute on function
    public.intake_retry(bigint[], int[], double precision[], text[], text[])
    to penstock_intake_executor;
