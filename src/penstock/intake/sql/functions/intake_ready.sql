create or replace function public.intake_ready() returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_mark bigint := pg_sequence_last_value('penstock.intake_wm');
    v_now timestamptz := penstock.clock();
begin
    return (exists (select from pgmq.q_intake_queue q
                    where q.msg_id > v_mark and q.vt <= v_now order by q.msg_id limit 1)
            or exists (select from penstock_intake.returned r
                       where coalesce((select q.vt <= v_now or q.read_ct > 0
                                       from pgmq.q_intake_queue q
                                       where q.msg_id = r.msg_id), true)))
           and not penstock.is_paused('intake');
end
$$;

comment on function public.intake_ready() is 'Whether a claim now might find something.';
revoke all on function public.intake_ready() from public;
grant execute on function public.intake_ready() to penstock_intake_executor;
