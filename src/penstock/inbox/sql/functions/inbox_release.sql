create or replace function webhook.inbox_release(p_ids uuid[], p_tokens uuid[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_count integer;
begin
    with back as (
        update public.webhook_events e
        set status = 'pending', pos = nextval('penstock.inbox_next'),
            lease_token = null, lease_owner = null, lease_expires_at = null,
            attempts = e.attempts - 1
        from unnest(p_ids, p_tokens) as f (id, token)
        where e.id = f.id and f.token is not null
          and e.lease_token is not distinct from f.token  -- see finish_rows
        returning e.id, f.token, e.lease_epoch
    )
    insert into public.webhook_attempts (id, lease_token, lease_epoch, outcome)
    select b.id, b.token, b.lease_epoch, 'RELEASED' from back b;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function webhook.inbox_release(uuid[], uuid[]) is
    'Give events back that have not started; the attempt does not count.';
revoke all on function webhook.inbox_release(uuid[], uuid[]) from public;
grant execute on function webhook.inbox_release(uuid[], uuid[]) to penstock_inbox_executor;
