create or replace function penstock.late_result(
    p_queue text, p_item_id uuid, p_token uuid, p_epoch bigint, p_verdict text, p_code text
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into penstock.late_results (queue, item_id, lease_token, lease_epoch, verdict, code)
    values (p_queue, p_item_id, p_token, p_epoch, p_verdict, p_code)
$$;

comment on function penstock.late_result(text, uuid, uuid, bigint, text, text) is
    'Keep an outcome whose lease was lost.';
revoke all on function penstock.late_result(text, uuid, uuid, bigint, text, text) from public;
