create or replace function penstock.heartbeat(
    p_id uuid, p_host text, p_pid integer, p_version text, p_queues text[]
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    delete from penstock.worker where heartbeat_at < penstock.clock() - interval '1 day';
    insert into penstock.worker (id, host, pid, version, queues)
    values (p_id, p_host, p_pid, p_version, p_queues)
    on conflict (id) do update set heartbeat_at = penstock.clock(), queues = excluded.queues
$$;

comment on function penstock.heartbeat(uuid, text, integer, text, text[]) is
    'Tell that a worker lives; people read it, leases do not.';
revoke all on function penstock.heartbeat(uuid, text, integer, text, text[]) from public;
grant execute on function penstock.heartbeat(uuid, text, integer, text, text[])
    to penstock_outbox_executor, penstock_intake_executor, penstock_payments_executor,
       penstock_inbox_executor;
