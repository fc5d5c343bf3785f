create or replace function penstock.finish_job(p_job text, p_token uuid, p_error text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The next run counts from the planned time; one run makes up for all that were missed.
    update penstock.schedule s
    set lease_token = null,
        lease_expires_at = null,
        last_finished_at = penstock.clock(),
        last_error = left(p_error, 2000),
        run_count = s.run_count + 1,
        next_run_at = make_interval(secs => s.every_s)
            + case when s.next_run_at + make_interval(secs => s.every_s) > penstock.clock()
                   then s.next_run_at else penstock.clock() end
    where s.job = p_job and s.lease_token = p_token;
    return found;
end
$$;

comment on function penstock.finish_job(text, uuid, text) is
    'End a run of a job; false if the lease was lost.';
revoke all on function penstock.finish_job(text, uuid, text) from public;
grant execute on function penstock.finish_job(text, uuid, text)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor, penstock_operator;
