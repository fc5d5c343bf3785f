-- Verdicts: retry (waits the given time, else by the schedule; dead when the attempts are used up),
-- reject (dead at once), unknown (dead too, and shown as held), check (the handler finished in its
-- own transaction: a row that is still leased was not committed and is retried).
create or replace function webhook.inbox_mark_failed(
    p_ids uuid[], p_tokens uuid[], p_verdicts text[],
    p_delays_s double precision[], p_codes text[], p_errors text[]
) returns table (id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_max integer := (select c.max_attempts from penstock.queue_config c where c.queue = 'inbox');
    v_done uuid[];
    v_dead uuid[];
    v_left integer[];
begin
    with told as (
        select f.id, f.token, f.delay_s, f.code, left(f.error, 2000) as error,
               case f.verdict when 'check' then 'retry' else f.verdict end as verdict
        from unnest(p_ids, p_tokens, p_verdicts, p_delays_s, p_codes, p_errors)
             as f (id, token, verdict, delay_s, code, error)
    ), ended as (
        update public.webhook_events e
        set status = case when t.verdict = 'retry' and e.attempts < v_max then 'failed'
                else 'dead_letter' end::public.webhook_event_status,
            lease_token = null, lease_owner = null, lease_expires_at = null,
            next_attempt_at = case when t.verdict = 'retry' and e.attempts < v_max
                then penstock.clock() + make_interval(secs => greatest(
                    coalesce(t.delay_s, webhook.backoff_s(e.attempts)), 0)) end,
            dead_at = case when t.verdict <> 'retry' or e.attempts >= v_max
                then penstock.clock() end,
            error_code = case when t.verdict = 'retry' and e.attempts >= v_max
                then 'max_attempts_exceeded' else t.code end,
            error = t.error
        from told t
        where e.id = t.id and t.token is not null
          and e.lease_token is not distinct from t.token  -- see finish_rows
        returning e.id, e.webhook_id, t.token, e.lease_epoch, upper(t.verdict) as outcome, t.code,
                  t.error, e.dead_at is not null as dead, e.error_code as end_code
    ), kept as (
        insert into public.webhook_attempts
            (id, lease_token, lease_epoch, outcome, error_code, error)
        select e.id, e.token, e.lease_epoch, e.outcome, e.code, e.error from ended e
    ), counted as (
        insert into webhook.tally (metric, webhook_id, label, count)
        select 'processing', e.webhook_id, 'error', count(*) from ended e group by e.webhook_id
        union all
        select 'dead_letter', e.webhook_id, e.end_code, count(*) from ended e where e.dead
        group by e.webhook_id, e.end_code
    )
    select array_agg(e.id), array_agg(e.id) filter (where e.dead) into v_done, v_dead from ended e;
    if v_dead is not null then
        perform webhook.alert_dead(v_dead);
    end if;
    v_left := array(
        select i from generate_subscripts(p_ids, 1) as i
        where p_ids[i] <> all (coalesce(v_done, '{}')));
    return query
        select r.id from webhook.inbox_refused(
            array(select p_ids[i] from unnest(v_left) as i),
            array(select p_tokens[i] from unnest(v_left) as i), 'failed',
            array(select p_codes[i] from unnest(v_left) as i)) r;
end
$$;

comment on function webhook.inbox_mark_failed(
    uuid[], uuid[], text[], double precision[], text[], text[]) is
    'End attempts that did not succeed, each with its own verdict; returns the refused ones.';
revoke all on function webhook.inbox_mark_failed(
    uuid[], uuid[], text[], double precision[], text[], text[]) from public;
grant execute on function webhook.inbox_mark_failed(
    uuid[], uuid[], text[], double precision[], text[], text[]) to penstock_inbox_executor;
