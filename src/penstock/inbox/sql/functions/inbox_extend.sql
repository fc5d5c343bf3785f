create or replace function webhook.inbox_extend(p_ids uuid[], p_tokens uuid[])
returns table (id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_lease_s integer := (select c.lease_s from penstock.queue_config c where c.queue = 'inbox');
begin
    return query
        with held as (
            update public.webhook_events e
            set lease_expires_at = penstock.clock() + make_interval(secs => v_lease_s)
            from unnest(p_ids, p_tokens) as f (id, token)
            where e.id = f.id and f.token is not null
              and e.lease_token is not distinct from f.token  -- see finish_rows
            returning e.id
        )
        select f.id from unnest(p_ids) as f (id)
        where not exists (select from held h where h.id = f.id);
end
$$;

comment on function webhook.inbox_extend(uuid[], uuid[]) is
    'Prolong leases still held; returns the events that are lost.';
revoke all on function webhook.inbox_extend(uuid[], uuid[]) from public;
grant execute on function webhook.inbox_extend(uuid[], uuid[]) to penstock_inbox_executor;
