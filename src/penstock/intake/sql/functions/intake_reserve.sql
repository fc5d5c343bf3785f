-- Two batches may hold the same user: both see the same state and take the same number, so one of
-- them fails on the unique index. It asks again under the pool's lock, and then sees the other's
-- slots. Each further failure means that somebody else got ahead, so this ends.
create or replace function public.intake_reserve(
    p_pool_id     text,
    p_user_ids    text[],
    p_request_ids text[] default null,
    p_headers     jsonb[] default null
) returns table (ordinal int, outcome text, resource_id uuid, reservation_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_requests text[] := coalesce(
        p_request_ids, array_fill(null::text, array[cardinality(p_user_ids)]));
    v_headers jsonb[];
begin
    perform penstock_intake.check_reserve(p_pool_id, p_user_ids, p_request_ids, p_headers);
    v_headers := penstock_intake.trace_headers(p_headers);
    for v_attempt in 1 .. 10 loop
        begin
            return query select * from penstock_intake.reserve_batch(
                p_pool_id, p_user_ids, v_requests, v_headers);
            return;
        exception when unique_violation then
            perform penstock_intake.lock_pool(p_pool_id);
        end;
    end loop;
    raise exception using
        errcode = '40001', message = 'the same users claim elsewhere at this moment';
end
$$;

comment on function public.intake_reserve(text, text[], text[], jsonb[]) is
    'Give each user a slot and queue its confirmation. Outcome per request: reserved, again (same '
    'request id: same slot), sold_out, busy, limit_reached or not_open. 1 to 5000 per call.';
revoke all on function public.intake_reserve(text, text[], text[], jsonb[]) from public;
grant execute on function public.intake_reserve(text, text[], text[], jsonb[])
    to penstock_intake_ingest, penstock_intake_executor;
