create or replace function public.intake_route_to_dlq(
    p_msg_id bigint, p_payload jsonb, p_read_ct int,
    p_error_code text default 'MAX_RETRIES', p_error text default null
) returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select r.dead_id
    from public.intake_reject(array[p_msg_id], array[p_read_ct], array[p_error_code],
                              array[p_error]) r
$$;

comment on function public.intake_route_to_dlq(bigint, jsonb, int, text, text) is
    'Move one message to intake_dlq if its read_ct is still the caller''s; NULL if not. The '
    'payload is taken from the queue, not from the caller.';
revoke all on function public.intake_route_to_dlq(bigint, jsonb, int, text, text) from public;
grant execute on function public.intake_route_to_dlq(bigint, jsonb, int, text, text)
    to penstock_intake_executor;
