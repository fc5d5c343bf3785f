create or replace function public.intake_queue_read(p_visibility_timeout int, p_batch_size int)
returns table (msg_id bigint, read_ct int, enqueued_at timestamptz, vt timestamptz, message jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if coalesce(p_visibility_timeout, -1) < 0 or coalesce(p_batch_size, 0) < 1 then
        raise exception using errcode = '22023',
            message = 'visibility timeout and batch size must be given and positive';
    end if;
    return query
        select r.msg_id, r.read_ct, r.enqueued_at, r.vt, r.message
        from pgmq.read('intake_queue', p_visibility_timeout, least(p_batch_size, 1000)) r
        order by r.msg_id;
end
$$;

comment on function public.intake_queue_read(int, int) is
    'Lease up to batch size (at most 1000) messages for a time; each read counts in read_ct.';
revoke all on function public.intake_queue_read(int, int) from public;
grant execute on function public.intake_queue_read(int, int) to penstock_intake_executor;
