create or replace function penstock.policy(p_queue text)
returns table (
    lease_s integer, max_attempts integer, backoff_base_s numeric, backoff_cap_s numeric,
    poll_ms integer, notify boolean
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select c.lease_s, c.max_attempts, c.backoff_base_s, c.backoff_cap_s, c.poll_ms, c.notify
    from penstock.queue_config c
    where c.queue = p_queue
$$;

comment on function penstock.policy(text) is 'The numbers a queue runs by.';
revoke all on function penstock.policy(text) from public;
grant execute on function penstock.policy(text)
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor, penstock_operator, penstock_readonly;
