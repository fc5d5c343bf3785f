-- Due rows under SKIP LOCKED: each job runs once however many workers ask. A worker that dies keeps
-- the job only until its lease ends, which is an hour away at most. A job that belongs to another
-- product than the caller's is not due for it.
create or replace function penstock.claim_jobs(p_names text[], p_lease_s integer)
returns table (job text, token uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with due as materialized (
        select s.job
        from penstock.schedule s
        where s.enabled
          and s.job = any (p_names)
          and penstock.may_run(s.product)
          and s.next_run_at <= penstock.clock()
          and (s.lease_expires_at is null or s.lease_expires_at <= penstock.clock())
        order by s.next_run_at
        limit 100
        for update skip locked
    )
    update penstock.schedule s
    set lease_token = gen_random_uuid(),
        lease_expires_at = penstock.clock()
            + make_interval(secs => least(greatest(p_lease_s, 1), 3600)),
        last_started_at = penstock.clock()
    from due
    where s.job = due.job
    returning s.job, s.lease_token
$$;

comment on function penstock.claim_jobs(text[], integer) is
    'Lease the due jobs among those this worker can run.';
revoke all on function penstock.claim_jobs(text[], integer) from public;
grant execute on function penstock.claim_jobs(text[], integer)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor, penstock_operator;
