create or replace function penstock_intake.check_reserve(
    p_pool_id text, p_user_ids text[], p_request_ids text[], p_headers jsonb[]
) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_count int := cardinality(p_user_ids);
begin
    if coalesce(length(p_pool_id), 0) not between 1 and 200
       or coalesce(v_count, 0) not between 1 and 5000
       or array_position(p_user_ids, null) is not null or array_position(p_user_ids, '') is not null
       or array_position(p_request_ids, '') is not null
       or coalesce(cardinality(p_request_ids), v_count) <> v_count
       or coalesce(cardinality(p_headers), v_count) <> v_count then
        raise exception using
            errcode = '22023',
            message = 'a claim needs a pool and 1 to 5000 users, each with at most one request id',
            hint    = 'ids have 1 to 200 characters; the arrays have the same length';
    end if;
    if exists (select from unnest(p_headers) h where jsonb_typeof(h) <> 'object') then
        raise exception using errcode = '22023', message = 'headers are a JSON object';
    end if;
    if penstock_intake.may_act_for(variadic p_user_ids) is not true then
        raise exception using
            errcode = 'PN702',
            message = 'the token does not permit a claim for another user',
            hint    = 'leave the user to the token, or use the service role';
    end if;
end
$$;

comment on function penstock_intake.check_reserve(text, text[], text[], jsonb[]) is
    'Refuse a claim that is malformed or made in somebody else''s name.';
revoke all on function penstock_intake.check_reserve(text, text[], text[], jsonb[]) from public;
