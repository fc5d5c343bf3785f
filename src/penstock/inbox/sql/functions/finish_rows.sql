-- The one way to success, where the token still matches. `is not distinct from` keeps the planner
-- on the key.
create or replace function webhook.finish_rows(p_ids uuid[], p_tokens uuid[]) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_count integer;
begin
    if cardinality(p_tokens) is distinct from cardinality(p_ids)
       or array_position(p_tokens, null) is not null then
        raise exception using
            errcode = 'PN201', message = 'every event to finish needs the token of its claim';
    end if;
    with done as (
        update public.webhook_events e
        set status = 'success', processed_at = penstock.clock(), finished_token = f.token,
            lease_token = null, lease_owner = null, lease_expires_at = null,
            error_code = null, error = null
        from unnest(p_ids, p_tokens) as f (id, token)
        where e.id = f.id and e.lease_token is not distinct from f.token
        returning e.webhook_id
    ), counted as (
        insert into webhook.tally (metric, webhook_id, label, count)
        select 'processing', d.webhook_id, 'success', count(*) from done d group by d.webhook_id
    )
    select count(*) into v_count from done;
    return v_count;
end
$$;

comment on function webhook.finish_rows(uuid[], uuid[]) is
    'Mark events as done where the token still matches; returns how many.';
revoke all on function webhook.finish_rows(uuid[], uuid[]) from public;
