-- Verdicts: retry (waits p_delays_s, dead when the attempts are used up), reject (dead at once),
-- unknown (held), check (the handler finished in its own transaction: a row that is still leased
-- was not committed and is retried; one that is gone is fine).
create or replace function app.outbox_mark_failed(
    p_seqs bigint[], p_ids uuid[], p_tokens uuid[], p_verdicts text[],
    p_delays_s double precision[], p_codes text[], p_errors text[]
) returns table (seq bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_max integer := (select c.max_attempts from penstock.queue_config c where c.queue = 'outbox');
    v_done bigint[];
    v_over bigint[];
    v_left integer[];
begin
    -- Before any event: alerts look at the routes, and whoever takes a route away locks those first.
    lock table public.outbox_routes in access share mode;
    perform app.outbox_split(p_seqs, p_tokens);
    with told as (
        select f.seq, f.token, f.delay_s, f.code, left(f.error, 2000) as error,
               case f.verdict when 'check' then 'retry' else f.verdict end as verdict
        from unnest(p_seqs, p_tokens, p_verdicts, p_delays_s, p_codes, p_errors)
             as f (seq, token, verdict, delay_s, code, error)
    ), ended as (
        -- A relay's rows have five attempts, as its decision record says.
        update public.outbox o
        set processing_token = null, lease_owner = null, lease_expires_at = null,
            next_attempt_at = case when t.verdict = 'retry' and o.attempts < app.outbox_attempts_max(o.relay, v_max)
                then penstock.clock() + make_interval(secs => greatest(t.delay_s, 0)) end,
            dead_at = case when t.verdict = 'reject'
                             or (t.verdict = 'retry' and o.attempts >= app.outbox_attempts_max(o.relay, v_max))
                then penstock.clock() end,
            held_at = case when t.verdict = 'unknown' then penstock.clock() end,
            error_code = case when t.verdict = 'retry' and o.attempts >= app.outbox_attempts_max(o.relay, v_max)
                then 'MAX_ATTEMPTS' else t.code end,
            error = t.error
        from told t
        where o.seq = t.seq and o.seq = any (p_seqs) and t.token is not null
          and o.processing_token is not distinct from t.token  -- see outbox_extend
        returning o.seq, o.id, t.token, o.lease_epoch, upper(t.verdict) as outcome, t.code, t.error,
                  o.next_attempt_at is null as over
    ), kept as (
        insert into public.outbox_attempts
            (seq, event_id, lease_token, lease_epoch, outcome, error_code, error)
        select e.seq, e.id, e.token, e.lease_epoch, e.outcome, e.code, e.error from ended e
    )
    select array_agg(e.seq), array_agg(e.seq) filter (where e.over) into v_done, v_over from ended e;
    if v_over is not null then
        perform app.outbox_alert(v_over);
    end if;
    v_left := array(
        select i from generate_subscripts(p_seqs, 1) as i
        where p_seqs[i] <> all (coalesce(v_done, '{}')));
    return query
        select r.seq from app.outbox_refused(
            array(select p_seqs[i] from unnest(v_left) as i),
            array(select p_ids[i] from unnest(v_left) as i),
            array(select p_tokens[i] from unnest(v_left) as i),
            'failed',
            array(select p_codes[i] from unnest(v_left) as i)) r;
end
$$;

comment on function app.outbox_mark_failed(
    bigint[], uuid[], uuid[], text[], double precision[], text[], text[]) is
    'End attempts that did not deliver, each with its own verdict; returns the refused ones.';
revoke all on function app.outbox_mark_failed(
    bigint[], uuid[], uuid[], text[], double precision[], text[], text[]) from public;
grant execute on function app.outbox_mark_failed(
    bigint[], uuid[], uuid[], text[], double precision[], text[], text[])
    to penstock_outbox_executor;
