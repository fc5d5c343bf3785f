-- Not fenced: acknowledging after a durable, idempotent success is right whoever holds the lease.
create or replace function public.intake_queue_delete(p_msg_ids bigint[]) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select d from pgmq.delete('intake_queue', p_msg_ids::bigint[]) as d $$;

comment on function public.intake_queue_delete(bigint[]) is
    'Remove messages from intake_queue; returns the ids that were there.';
revoke all on function public.intake_queue_delete(bigint[]) from public;
grant execute on function public.intake_queue_delete(bigint[]) to penstock_intake_executor;
