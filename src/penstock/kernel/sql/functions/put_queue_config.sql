-- Merges the given values into the row (or into the defaults): what a file does not name stays.
create or replace function penstock.put_queue_config(
    p_queue text, p_values jsonb, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before jsonb;
    v_row penstock.queue_config;
begin
    insert into penstock.queue_config (queue) values (p_queue) on conflict (queue) do nothing;
    select * into v_row from penstock.queue_config c where c.queue = p_queue for update;
    v_before := to_jsonb(v_row);
    v_row := jsonb_populate_record(v_row, p_values - 'queue');
    update penstock.queue_config c
    set lease_s = v_row.lease_s, max_attempts = v_row.max_attempts,
        backoff_base_s = v_row.backoff_base_s, backoff_cap_s = v_row.backoff_cap_s,
        poll_ms = v_row.poll_ms, notify = v_row.notify, retention = v_row.retention,
        fairness = v_row.fairness
    where c.queue = p_queue;
    return audit.record('apply', 'penstock.queue_config',
        jsonb_build_object('queue', p_queue, 'before', v_before, 'after', to_jsonb(v_row)),
        p_reason, p_operator);
end
$$;

comment on function penstock.put_queue_config(text, jsonb, text, text) is
    'Set policy of one queue; audited with the row before and after.';
revoke all on function penstock.put_queue_config(text, jsonb, text, text) from public;
grant execute on function penstock.put_queue_config(text, jsonb, text, text) to penstock_control;
