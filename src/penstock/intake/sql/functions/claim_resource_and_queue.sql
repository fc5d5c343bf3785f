-- NULL means that no slot was free at some moment of the call. Slots that other claims hold at this
-- moment may come back, so they are waited for a little and then answered by an error of their own.
create or replace function public.claim_resource_and_queue(
    p_pool_id    text,
    p_user_id    text,
    p_request_id text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_answer record;
begin
    for v_attempt in 1 .. 6 loop
        select * into v_answer
        from public.intake_reserve(p_pool_id, array[p_user_id], array[p_request_id]);
        exit when v_answer.outcome <> 'busy';
        perform pg_sleep(0.005 * v_attempt * v_attempt);
    end loop;
    case v_answer.outcome
        when 'busy' then
            raise exception using errcode = 'PN302',
                message = format('all free slots of pool %s are being claimed now', p_pool_id),
                hint    = 'retry with the same request id';
        when 'limit_reached' then
            raise exception using errcode = 'PN303',
                message = format('this user has reached the limit of pool %s', p_pool_id);
        when 'not_open' then
            raise exception using errcode = 'PN304',
                message = format('pool %s is not open', p_pool_id);
        else
            return v_answer.resource_id;
    end case;
end
$$;

comment on function public.claim_resource_and_queue(text, text, text) is
    'Claim one slot for a user and queue its confirmation; NULL when sold out. A repeated request '
    'id gets the same slot. Raises PN302 busy, PN303 limit reached, PN304 not open.';
revoke all on function public.claim_resource_and_queue(text, text, text) from public;
grant execute on function public.claim_resource_and_queue(text, text, text)
    to penstock_intake_ingest, penstock_intake_executor;
