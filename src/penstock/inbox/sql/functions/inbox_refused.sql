-- Which of these were not ended by their own token, neither just now nor before. Each is kept as a
-- late result, once. An attempt that ended otherwise (reaped, released) does not make it good.
create or replace function webhook.inbox_refused(
    p_ids uuid[], p_tokens uuid[], p_verdict text, p_codes text[]
) returns table (id uuid)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with refused as (
        select f.id, f.token, f.code
        from unnest(p_ids, p_tokens, p_codes) as f (id, token, code)
        where not exists (
                select from public.webhook_events e
                where e.id = f.id and e.finished_token = f.token and e.status = 'success')
          and not exists (
                select from public.webhook_events_archive a
                where a.id = f.id and a.finished_token = f.token)
          and not exists (
                select from public.webhook_attempts a
                where p_verdict <> 'done' and a.id = f.id and a.lease_token = f.token
                  and a.outcome in ('RETRY', 'REJECT', 'UNKNOWN'))
    ), kept as (
        insert into penstock.late_results (queue, item_id, lease_token, lease_epoch, verdict, code)
        select 'inbox', r.id, r.token, null, p_verdict, r.code from refused r
        where r.token is not null and not exists (
            select from penstock.late_results l
            where l.item_id = r.id and l.lease_token = r.token and l.verdict = p_verdict)
    )
    select r.id from refused r
$$;

comment on function webhook.inbox_refused(uuid[], uuid[], text, text[]) is
    'Outcomes whose lease was lost: recorded as late results and returned.';
revoke all on function webhook.inbox_refused(uuid[], uuid[], text, text[]) from public;
